"""nanoGPT and what grew from it: nanoGPT, llama2.c, build-nanogpt."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pilot.readers.points import Points
from pilot.readers.text_base import text_reader
from pilot.readers.text_names import NUMBER, number
from pilot.series.types import GRAD_NORM, LEARNING_RATE, LOSS

_N = f"({NUMBER})"
_ITER = re.compile(rf"\biter(?:ation)? (\d+)(?:/\d+)?: (?:train )?loss:? {_N}")
_ESTIMATE = re.compile(
    rf"\bstep (\d+)(?:/\d+)?: train loss:? {_N}(?: [A-Za-z]+)?,? val(?:idation)? loss:? {_N}",
    re.IGNORECASE,
)
_LLAMA2C = re.compile(rf"^(\d+) \| loss {_N} \| lr {_N} \|")
_BUILD = re.compile(rf"^step\s+(\d+)\s?\|\s*loss: {_N}\s?\|")
_BUILD_FILE = re.compile(rf"^(\d+) (train|val) {_N}\s*$")
_BUILD_VALIDATION = re.compile(rf"^validation loss: {_N}\s*$", re.IGNORECASE)
_RATE = re.compile(rf"\blr:? {_N}")
_NORM = re.compile(rf"\b(?:grad[_ ]?)?norm:? {_N}")
_LINE = re.compile(
    rf"\biter \d+: loss {NUMBER}, |\bstep \d+: train loss {NUMBER}(?: [A-Za-z]+)?,"
    rf" val loss {NUMBER}"
    rf"|^\d+ \| loss {NUMBER} \| lr {NUMBER} \||^\d+ (?:train|val) {NUMBER}$"
    rf"|^step\s+\d+\s?\|\s*loss: {NUMBER}\s?\|\s*lr:? {NUMBER}",
    re.MULTILINE,
)
Estimate = tuple[int, float | None, float | None]
"""Step, training loss and validation loss of an estimate over both splits."""
_HINT = re.compile(r"^tokens per iteration will be: |^number of parameters: [\d.]+M", re.MULTILINE)


def feed(points: Points, lines: Iterable[str]) -> None:
    """Add the steps and the estimates on both splits.

    nanoGPT prints the loss of a batch (``iter N: loss``) and now and then an estimate of the
    training and validation loss (``step N:``). The estimate is the training loss only in a log
    that has no batch losses.
    """
    waiting: list[Estimate] | None = []
    step = 0
    for line in lines:
        batch = _batch(line)
        if batch is not None:
            _flush(points, waiting or [], with_train=False)
            waiting, step = None, batch[0]
            points.train(step, batch[1])
            continue
        if "val" not in line:
            continue
        if (match := _ESTIMATE.search(line)) is not None:
            estimate = (int(match.group(1)), number(match.group(2)), number(match.group(3)))
            if waiting is None:
                points.validation(estimate[0], {"": estimate[2]})
            else:
                waiting.append(estimate)
        elif (match := _BUILD_FILE.match(line)) is not None:
            points.validation(int(match.group(1)), {"": number(match.group(3))})
        elif (match := _BUILD_VALIDATION.match(line)) is not None:
            points.validation(step, {"": number(match.group(1))})
    _flush(points, waiting or [], with_train=True)


def _batch(line: str) -> tuple[int, dict[str, float | None]] | None:
    """Step and values of a line with the loss of a batch."""
    if "loss" not in line:
        match = _BUILD_FILE.match(line) if " train " in line else None
        if match is None:
            return None
        return int(match.group(1)), {LOSS: number(match.group(3))}
    if "iter" in line:
        match = _ITER.search(line)
    elif "|" in line:
        match = _LLAMA2C.match(line) or _BUILD.match(line)
    else:
        return None
    if match is None:
        return None
    values: dict[str, float | None] = {LOSS: number(match.group(2))}
    if "lr" in line and (rate := _RATE.search(line)) is not None:
        values[LEARNING_RATE] = number(rate.group(1))
    if "norm" in line and (norm := _NORM.search(line)) is not None:
        values[GRAD_NORM] = number(norm.group(1))
    return int(match.group(1)), values


def _flush(points: Points, estimates: list[Estimate], *, with_train: bool) -> None:
    for step, train, validation in estimates:
        if with_train:
            points.train(step, {LOSS: train})
            points.note("no batch losses: the training loss is the estimate at each validation")
        points.validation(step, {"": validation})


READER = text_reader(
    "nanogpt",
    "lines 'iter 10: loss 9.1, time ...' and 'step 0: train loss 10.9, val loss 10.9' "
    "(nanoGPT, llama2.c, build-nanogpt)",
    _LINE,
    feed,
    hint=_HINT,
    objective="lm",
)
