"""nanochat and autoresearch: ``step 00010/21400 (0.05%) | loss: 3.4 | lrm: 1.00 | dt: ...``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pilot.readers.points import Points
from pilot.readers.text_base import text_reader
from pilot.readers.text_names import NUMBER, number
from pilot.series.types import GRAD_NORM, LOSS

_N = f"({NUMBER})"
_TRAIN = re.compile(
    rf"\bstep (\d+)(?:/\d+)?(?: \([\d.]+%\))?\s*\|\s*(?:train(?:ing)? )?loss:\s*{_N}"
    rf"(?:\s*\|\s*grad norm:\s*{_N})?",
    re.IGNORECASE,
)
_VALIDATION = re.compile(
    rf"\bstep (\d+)(?:/\d+)?\s*\|.{{0,200}}?\bval(?:idation)? (bpb|loss):\s*{_N}", re.IGNORECASE
)
_LINE = re.compile(
    rf"\bstep \d+(?:/\d+)? \([\d.]+%\)\s*\|\s*loss:\s*{NUMBER}"
    rf"|\bStep \d+(?:/\d+)?\s*\|\s*(?:Training loss|Validation bpb|Validation loss):\s*{NUMBER}"
)
_HINT = re.compile(r"^Estimated FLOPs per token: |^Calculated number of iterations", re.MULTILINE)


def feed(points: Points, lines: Iterable[str]) -> None:
    """Add the steps and the validations (bits per byte, or nats under the set "").

    The loss printed by the base training is an exponential mean (factor 0.9), so a spike of one
    step looks a tenth as high and lasts some steps: noted. The multiplier ``lrm`` is no learning
    rate.
    """
    for line in lines:
        if "tep " not in line or "|" not in line:
            continue
        if "oss:" in line and (match := _TRAIN.search(line)) is not None:
            step, loss, norm = match.groups()
            points.train(
                int(step), {LOSS: number(loss), GRAD_NORM: None if norm is None else number(norm)}
            )
            if "%)" in line:
                points.note("the printed loss is an exponential mean over about 10 steps")
        elif "al" in line and (match := _VALIDATION.search(line)) is not None:
            step, unit, value = match.groups()
            points.validation(int(step), {"bpb" if unit.lower() == "bpb" else "": number(value)})


READER = text_reader(
    "nanochat",
    "lines 'step 00010/21400 (0.05%) | loss: 3.4 | ...', 'Step 00250 | Validation bpb: 1.05'",
    _LINE,
    feed,
    hint=_HINT,
    objective="lm",
)
