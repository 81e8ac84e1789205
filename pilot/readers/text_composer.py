"""MosaicML Composer (llm-foundry): ``[batch=1/100]:`` and below it ``Train loss/train/total:``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pilot.readers.points import Points
from pilot.readers.text_base import text_reader
from pilot.readers.text_names import NUMBER, add, find, number

_HEADER = re.compile(
    r"\[(?P<eval>Eval )?(?:epoch=(?P<epoch>\d+)/?\d*\]\[)?"
    r"(?P<unit>batch|token|sample|iteration|epoch)=(?P<at>\d+)(?:/(?P<total>\d+))?\]"
)
_METRIC = re.compile(
    rf"\b(?P<kind>Train|Eval) (?P<key>[\w./-]+(?: [\w./-]+)*): (?P<value>{NUMBER})(?!\S)"
)
_CE = re.compile(r"^(?:metrics/)?(?:(.*)/)?(?:Language)?CrossEntropy(?:Loss)?$")
_LINE = re.compile(
    r"\bTrain (?:loss/train(?:/total)?|trainer/loss|(?:metrics/train/)?\w*CrossEntropy): "
    rf"{NUMBER}"
)


def feed(points: Points, lines: Iterable[str]) -> None:
    """Add a row per block; the step is the batch over all epochs (``time/batch`` is before it)."""
    step: int | None = None
    block: list[tuple[str, str]] = []
    for line in lines:
        if "=" in line and (header := _HEADER.search(line)) is not None:
            step = _add(points, step, block)
            block = []
            if header.group("eval") is None:
                step = _step(header, step)
        if "Train " not in line and "Eval " not in line:
            continue
        for metric in _METRIC.finditer(line):
            key, value = metric.group("key"), metric.group("value")
            if metric.group("kind") == "Train":
                block.append((key, value))
            elif (match := _CE.match(key)) is not None:
                name = match.group(1) or ""
                points.validation(step or 0, {"" if name == "eval" else name: number(value)})
    _add(points, step, block)


def _step(header: re.Match[str], last: int | None) -> int | None:
    """The batch of a header; where it counts tokens, ``time/batch`` must say it."""
    if header.group("unit") != "batch":
        return last
    at, total, epoch = int(header.group("at")), header.group("total"), header.group("epoch")
    return at + (int(epoch) - 1) * int(total) if epoch and total else at


def _add(points: Points, step: int | None, block: list[tuple[str, str]]) -> int | None:
    """Add a block; returns its step."""
    batch = next((number(value) for key, value in block if key == "time/batch"), None)
    if batch is not None:
        step = int(batch) + 1
    # The same loss stands under several names, rounded in one of them.
    named = [("loss" if key.startswith("loss/train") else key, value) for key, value in block]
    add(points, step, find(named))
    return step


READER = text_reader(
    "composer",
    "blocks '[batch=1/100]:' with lines 'Train loss/train/total: 12.0' (Composer, llm-foundry)",
    _LINE,
    feed,
    objective="lm",
)
