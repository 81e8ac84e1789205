"""DeepSpeed itself: ``steps: 10 loss: 2.3 iter time ...`` and ``step=10, skipped=0, lr=[..]``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pilot.readers.points import Points
from pilot.readers.text_base import text_reader
from pilot.readers.text_names import NUMBER, number
from pilot.series.types import LEARNING_RATE, LOSS, LOSS_SCALE, SKIPPED

_N = f"({NUMBER})"
_PIPE = re.compile(rf"\bsteps: (\d+) loss: {_N}")
_PROGRESS = re.compile(rf"\bstep=(\d+), skipped=(\d+), lr=\[{_N}")
_OVERFLOW = re.compile(rf"OVERFLOW!.*?reducing to {_N}", re.IGNORECASE)
_LINE = re.compile(rf"\bsteps: \d+ loss: {NUMBER} iter time")


def feed(points: Points, lines: Iterable[str]) -> None:
    """Add the steps; ``skipped`` is the number of updates skipped since the line before."""
    skipped_before = 0
    scale: float | None = None
    for line in lines:
        if "loss: " in line and (match := _PIPE.search(line)) is not None:
            points.train(int(match.group(1)), {LOSS: number(match.group(2)), LOSS_SCALE: scale})
        elif "skipped=" in line and (match := _PROGRESS.search(line)) is not None:
            skipped = int(match.group(2))
            new = skipped - skipped_before if skipped >= skipped_before else skipped
            skipped_before = skipped
            points.train(
                int(match.group(1)),
                {SKIPPED: float(new), LEARNING_RATE: number(match.group(3)), LOSS_SCALE: scale},
            )
        elif "OVERFLOW!" in line and (match := _OVERFLOW.search(line)) is not None:
            scale = number(match.group(1))


READER = text_reader(
    "deepspeed",
    "lines 'steps: 10 loss: 2.3 iter time (s): ...' (DeepSpeed's pipeline engine)",
    _LINE,
    feed,
    certain=0.6,  # GPT-NeoX and others print these lines beside their own
)
