"""What moved in the records just before a value that is not finite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pilot.series.limits import GRAD_RATIO, LEAD_MIN, LEAD_RATIO
from pilot.series.rolling import mid
from pilot.series.text import num


class LeadUp(NamedTuple):
    """(step, value before, value) of the jump of the loss and of the grad norm; None: no jump."""

    loss: tuple[int, float, float] | None
    grad_norm: tuple[int, float, float] | None


def lead_up(records: Sequence[tuple[int, float, float | None]]) -> LeadUp:
    """The jumps within ``records`` = (step, finite loss, grad norm or None), in order of step.

    The loss: the last record, from twice the median of those before it on. The grad norm: the first
    that is not finite or above 10 x the median of the finite ones before it. Two before each are
    needed. A constant series has no jump. Cost: some medians of a few records, once an event.
    """
    return LeadUp(_loss(records), _grad_norm(records))


def _loss(records: Sequence[tuple[int, float, float | None]]) -> tuple[int, float, float] | None:
    if len(records) <= LEAD_MIN:
        return None
    step, last, _ = records[-1]
    before = mid([loss for _, loss, _ in records[:-1]])
    return (step, before, last) if before > 0.0 and last >= LEAD_RATIO * before else None


def _grad_norm(
    records: Sequence[tuple[int, float, float | None]],
) -> tuple[int, float, float] | None:
    fine: list[float] = []
    for step, _, norm in records:
        if norm is None:
            continue
        if len(fine) >= LEAD_MIN and not norm <= GRAD_RATIO * mid(fine):
            return step, mid(fine), norm
        if math.isfinite(norm):
            fine.append(norm)
    return None


def sentence(found: LeadUp) -> str:
    """``the loss rose from 1.7 to 9.88 at step 4``, and the same of the grad norm; may be empty."""
    parts = []
    for name, jump in (("loss", found.loss), ("grad norm", found.grad_norm)):
        if jump is not None:
            step, before, value = jump
            parts.append(f"the {name} rose from {num(before)} to {num(value)} at step {step}")
    return " and ".join(parts)
