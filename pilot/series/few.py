"""A series of few records that ends far above the level it had before a jump."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pilot.series.limits import (
    FEW_AFTER,
    FEW_ALONE,
    FEW_END,
    FEW_MAX,
    FEW_RATIO,
    FEW_SIGMA,
)
from pilot.series.rolling import DIFF_TO_SIGMA, mid
from pilot.series.text import num, percent, size
from pilot.series.types import FAIL, LOSS, LOW, Event


def risen(records: Sequence[tuple[int, float]], *, window: bool) -> Event | None:
    """At the end of 5 to 23 (step, finite loss): all from a jump on lie far above the level before.

    b = the median of the last (up to) three before the jump. At least four records follow, each
    above 1.8 b and above b exp(4 s), the median of the last three above 2 b; with a single record
    before the jump, 3 b for all. s = 1.4826 median|difference| / sqrt 2 of ln loss without the
    jump: a low first record of a noisy run is none. Fails with confidence low, as
    ``early_damage``, or in a ``window`` as ``never_recovers``. Only for losses above zero; NaN, inf
    and missing records do not come here. A constant series passes. Cost: some medians of at most 23
    records, once. Source: see ``early``; there are too few records for the rules that know the
    noise. By chance in 1 of 2,000 runs of white noise of 40 % of the loss.
    """
    losses = [loss for _, loss in records]
    if len(losses) > FEW_MAX or min(losses, default=0.0) <= 0.0:
        return None
    for place in range(1, len(losses) - FEW_AFTER + 1):
        if _jumps(losses, place):
            return _event(records, place, window)
    return None


def _jumps(losses: Sequence[float], place: int) -> bool:
    before, after = mid(list(losses[max(0, place - 3) : place])), losses[place:]
    logs = [math.log(loss) for loss in losses]
    moves = [abs(b - a) for a, b in zip(logs, logs[1:], strict=False)]
    sigma = DIFF_TO_SIGMA * mid(moves[: place - 1] + moves[place:])
    least, end = (FEW_RATIO, FEW_END) if place > 1 else (FEW_ALONE, FEW_ALONE)
    gap = min(logs[place:]) - math.log(before)
    return gap > max(math.log(least), FEW_SIGMA * sigma) and mid(list(after[-3:])) >= end * before


def _event(records: Sequence[tuple[int, float]], place: int, window: bool) -> Event:
    before = mid([loss for _, loss in records[max(0, place - 3) : place]])
    top, neg_step = max((loss, -step) for step, loss in records[place:])
    last_step, last = records[-1]
    return Event(
        kind="never_recovers" if window else "early_damage",
        series=LOSS,
        first_step=records[place][0],
        last_step=last_step,
        is_open=True,
        severity=FAIL,
        confidence=LOW,
        size_frac=size(top / before - 1.0),
        detail=f"loss {num(before)} to {num(top)} ({percent(top / before - 1.0)}) at step "
        f"{-neg_step}, still {num(last)} at step {last_step}; few records",
    )
