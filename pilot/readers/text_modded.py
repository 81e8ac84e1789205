"""modded-nanogpt and its forks, parameter-golf: ``step:10/1000 train_loss:3.2 train_time:...``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pilot.readers.points import Points
from pilot.readers.text_base import text_reader
from pilot.readers.text_names import NUMBER, add, find

# Both "step:10/1000 train_loss:3.2" and "step  10/1840 | time: 4,542ms | val loss: 3.28".
_STEP = re.compile(r"\bstep(?::\s*|\s+)(\d+)(?:/\d+)?[\s,|]")
_PAIR = re.compile(rf"\b([a-zA-Z][\w/]*(?: (?:loss|norm|lr|avg))?)\s?:\s*({NUMBER})")
_LINE = re.compile(
    rf"\bstep:\s*\d+(?:/\d+)?[ ,].{{0,300}}?\b(?:train|val)_?loss:\s*{NUMBER}"
    rf"|\bstep\s+\d+/\d+ \| .{{0,300}}?\b(?:train|val) loss: {NUMBER}"
)
_SUMMARY = re.compile(r"^(?:final|stopping|best)", re.IGNORECASE)


def feed(points: Points, lines: Iterable[str]) -> None:
    """Add the steps; lines without a loss (only a time) and summaries at the end are passed over.

    Bits per byte (``val_bpb``) beside a validation loss are the same quantity in another unit and
    are left out.
    """
    for line in lines:
        if "step" not in line or "loss" not in line:
            continue
        match = _STEP.search(line)
        if match is None or _SUMMARY.match(line):
            continue
        step = int(match.group(1))
        add(points, step, find(_PAIR.findall(line, match.end() - 1)))


READER = text_reader(
    "modded-nanogpt",
    "lines 'step:10/1000 train_loss:3.2 train_time:...', 'step:125/1000 val_loss:4.4 ...' "
    "(modded-nanogpt and forks, parameter-golf)",
    _LINE,
    feed,
    objective="lm",
)
