"""LitGPT: ``Epoch 1 | iter 10 step 10 | loss train: 2.1, val: n/a | iter time: ...``."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable

from pilot.readers.points import Points
from pilot.readers.text_base import text_reader
from pilot.readers.text_names import NUMBER, number
from pilot.series.types import EPOCH, LOSS

_N = f"({NUMBER})"
# "iter 10 step 10 | loss train: 2.1", "iter  1 step  1: loss 2.1", and of the first versions
# "Ep 1 | iter 4 | step 1: loss train (curr): 2.1".
_PLACE = r"\biter +{0}(?: +(?:\| *)?step +{0})? *(?:: *)?(?:\| *)?"
_TRAIN = re.compile(
    r"(?:\bEp(?:och)?\s+(\d+)\s+\|\s*)?"
    + _PLACE.format(r"(\d+)")
    + rf"(?:loss train|train loss|loss)(?: \(curr\))?:?\s+{_N}",
    re.IGNORECASE,
)
_VALIDATION = re.compile(rf"\biter\s+(\d+): val loss:?\s+{_N}")
_LINE = re.compile(
    _PLACE.format(r"\d+")
    + rf"loss train(?: \(curr\))?:?\s+{NUMBER}"
    + rf"|\biter\s+\d+\s+step\s+\d+: loss\s+{NUMBER}"
    + rf"|\biter\s+\d+: val loss:? {NUMBER}, val time",
    re.IGNORECASE,
)
# With fewer points than this nothing can be judged; micro-batches are better than that.
_FEW_STEPS = 8


def feed(points: Points, lines: Iterable[str]) -> None:
    """Add the steps. Micro-batches of one step are joined; ``val: n/a`` is no value.

    Where that leaves fewer than 8 points, and at most half of the lines, the iterations
    (micro-batches) are counted instead. A validation is printed with the number of the iteration
    and stands at the step that the last line with a loss named; the value repeated beside the
    training losses is left out, since it is that of the last validation.
    """
    step, num_losses, iterations = 0, 0, array("q")
    for line in lines:
        if "iter" not in line or "loss" not in line:
            continue
        if (match := _TRAIN.search(line)) is not None:
            epoch, iteration, at, loss = match.groups()
            iterations.append(int(iteration))
            num_losses += 1
            step = int(iteration if at is None else at)
            points.train(step, {LOSS: number(loss), EPOCH: None if epoch is None else float(epoch)})
        elif (match := _VALIDATION.search(line)) is not None:
            iterations.append(int(match.group(1)))
            points.validation(step, {"": number(match.group(2))})
    num_steps = len(set(points.steps))
    is_few = 0 < num_steps < _FEW_STEPS and 2 * num_steps <= num_losses
    if is_few and len(iterations) == len(points.steps) and iterations[-1] > iterations[0]:
        points.steps = iterations
        points.note("few optimizer steps: the iterations (micro-batches) are counted")


READER = text_reader(
    "litgpt",
    "lines 'Epoch 1 | iter 10 step 10 | loss train: 2.1, val: n/a | ...' (LitGPT)",
    _LINE,
    feed,
    objective="lm",
)
