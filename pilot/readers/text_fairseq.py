"""fairseq and metaseq: ``| train_inner | epoch 001:  100 / 2000 loss=.., gnorm=..`` or JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pilot.readers.points import Points
from pilot.readers.text_base import text_reader
from pilot.readers.text_names import NUMBER, add, find, number
from pilot.series.types import LOSS

_INNER = re.compile(r"\bepoch (\d+):\s*(\d+) / (\d+) (.*)")
_EQUALS = re.compile(rf"([\w/]+)=({NUMBER})")
_BARS = re.compile(rf"\| ([a-z_]\w*) ({NUMBER})(?= |$)")
_JSON = re.compile(rf'"([\w/]+)": "?({NUMBER})"?')
_SUBSET = re.compile(r"\bvalid on '([^']+)' subset")
_TAGGED = re.compile(r"\| (train_inner|train|valid\w*|test\w*) \|(.*)")
# Before fairseq 0.9: "| epoch 022 | loss 3.8 | ...", "| epoch 022 | valid on 'valid' subset | ..."
_OLD = re.compile(r"\| epoch \d+ \| (valid on '[^']+' subset)?(?=.{0,40}loss)(.*)")
_LINE = re.compile(
    rf"\bepoch \d+:\s*\d+ / \d+ (?:.{{0,200}}?\b)?loss={NUMBER}"
    rf"|\| epoch \d+ \| (?:valid on '[^']+' subset \| )?(?:valid_)?loss {NUMBER} \|"
    rf'|\| (?:train_inner|valid\w*) \| (?:\{{"epoch"|epoch \d+ \|.{{0,300}}?\bloss {NUMBER})'
)
_HINT = re.compile(r"\| INFO \| (?:fairseq|metaseq)", re.IGNORECASE)


def feed(points: Points, lines: Iterable[str]) -> None:
    """Add the updates and the validations.

    The mean over an epoch (``| train |``, before version 0.9 without the tag) counts only where
    nothing else was said of the updates: it repeats what ``train_inner`` said. fairseq's losses are
    in bits (base 2) for most criteria.
    """
    last: int | None = None
    for line in lines:
        if "loss" not in line:
            continue
        tagged = _TAGGED.search(line) if "| " in line else None
        if tagged is not None and tagged.group(1) != "train_inner":
            tag, rest = tagged.groups()
            if tag == "train":
                _add_mean(points, _JSON.findall(rest) if "{" in rest else _BARS.findall(rest))
            else:
                _add_validation(points, last, tag, rest)
        elif (inner := _INNER.search(line)) is not None:
            last = _add(points, _EQUALS.findall(inner.group(4)), last)
        elif tagged is not None and "{" in line:
            last = _add(points, _JSON.findall(line), last)
        elif (old := _OLD.search(line)) is not None:
            if old.group(1):
                _add_validation(points, last, "valid", old.group())
            else:
                _add_mean(points, _BARS.findall(old.group()))


def _add(points: Points, pairs: list[tuple[str, str]], last: int | None) -> int | None:
    step = _updates(pairs)
    add(points, step, find(pairs))
    return last if step is None else step


def _add_mean(points: Points, pairs: list[tuple[str, str]]) -> None:
    """A mean over an epoch: its values stand behind all that was said of single updates."""
    found = [(place._replace(tier=place.tier + 1), value) for place, value in find(pairs)]
    is_mean = [(place, v) for place, v in found if place.name != LOSS or place.tier == 1]
    step = _updates(pairs)
    if step is not None:
        add(points, step, is_mean)


def _updates(pairs: list[tuple[str, str]]) -> int | None:
    for key, text in pairs:
        if key.endswith("num_updates"):
            value = number(text)
            return None if value is None else int(value)
    return None


def _add_validation(points: Points, last: int | None, tag: str, rest: str) -> None:
    pairs = _JSON.findall(rest) if "{" in rest else _BARS.findall(rest)
    subset = _SUBSET.search(rest)
    name = subset.group(1) if subset else tag
    losses = [(key.removeprefix(tag + "_"), number(text)) for key, text in pairs]
    loss = next((value for key, value in losses if key == "loss"), None)
    step = _updates(pairs)
    points.validation(last if step is None else step, {"" if name == "valid" else name: loss})


READER = text_reader(
    "fairseq",
    "lines '| train_inner | epoch 001:  100 / 2000 loss=9.1, ..., num_updates=100, gnorm=2.1' "
    "(fairseq, metaseq)",
    _LINE,
    feed,
    hint=_HINT,
)
