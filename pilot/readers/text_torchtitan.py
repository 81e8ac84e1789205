"""torchtitan and its forks (flame): ``step: 10  loss:  8.1  grad_norm: 1.2  memory: ...``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pilot.readers.points import Points
from pilot.readers.text_base import text_reader
from pilot.readers.text_names import NUMBER, number
from pilot.series.types import GRAD_NORM, LEARNING_RATE, LOSS

_N = f"({NUMBER})"
_STEP = re.compile(
    r"(?P<validate>validate )?\bstep:\s*(?P<step>\d+)\s+"
    rf"(?:loss|global_avg_loss):\s*(?P<loss>{NUMBER})"
)
_NORM = re.compile(rf"\b(?:grad_norm|gnorm):\s*{_N}")
_RATE = re.compile(rf"\blr:\s*{_N}")
_LINE = re.compile(rf"\bstep: *\d+  +(?:loss|global_avg_loss): *{NUMBER}  +\w+:")
_HINT = re.compile(r"\[titan\]|torchtitan|Starting job: .*torch", re.IGNORECASE)


def feed(points: Points, lines: Iterable[str]) -> None:
    """Add the steps and the validations; flame prints ``lr: gnorm:`` on a line of their own."""
    step: int | None = None
    for line in lines:
        if "loss:" in line and (match := _STEP.search(line)) is not None:
            at, loss = int(match.group("step")), number(match.group("loss"))
            if match.group("validate"):
                points.validation(at, {"": loss})
                continue
            step = at
            points.train(step, {LOSS: loss} | _extras(line))
        elif step is not None and "lr: " in line and "gnorm:" in line:
            points.train(step, _extras(line))
            step = None


def _extras(line: str) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    if (norm := _NORM.search(line)) is not None:
        values[GRAD_NORM] = number(norm.group(1))
    if "lr:" in line and (rate := _RATE.search(line)) is not None:
        values[LEARNING_RATE] = number(rate.group(1))
    return values


READER = text_reader(
    "torchtitan",
    "lines 'step: 10  loss:  8.1234  grad_norm: 1.2  memory: ...' (torchtitan, flame)",
    _LINE,
    feed,
    hint=_HINT,
    objective="lm",
)
