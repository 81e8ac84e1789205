"""Which arm tells how much a lower learning rate gains: the reference of the gate ``progress``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pilot.arms.specs import RATE
from pilot.checks.finite import check as check_finite
from pilot.checks.registry import FAIL
from pilot.compare.start import other_start
from pilot.folder import BASELINE
from pilot.gates import Gates
from pilot.records import Outcome, ValidationRecord
from pilot.view import ArmView, PilotView

OTHER_START = "is not comparable"


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The best stable arm of a lower rate; ``rejected`` says why each other one is not usable."""

    arm: ArmView | None
    final: ValidationRecord | None
    rejected: tuple[str, ...]


def learning_rate_of(view: PilotView, arm: ArmView) -> float | None:
    """The peak rate of an arm; None for an arm whose value is no positive number."""
    if arm.job.variable != RATE:
        return view.plan.schedule.learning_rate
    try:
        rate = float(arm.job.value)
    except ValueError:
        return None
    return rate if math.isfinite(rate) and rate > 0.0 else None


def best_reference(view: PilotView, gates: Gates, arm: ArmView) -> Reference:
    """Among arms of a lower rate than ``arm``: completed, finite, lowest final validation loss."""
    own = learning_rate_of(view, arm)
    best: tuple[ArmView, ValidationRecord] | None = None
    rejected = []
    for name in sorted(view.arms):
        other = view.arms[name]
        rate = learning_rate_of(view, other)
        lower = own is not None and rate is not None and rate < own
        if name == BASELINE or other.job.variable != RATE or not lower:
            continue
        final = other.validation(view.plan.final_validation)
        problem = _problem(view, gates, other, final)
        if problem or final is None:
            rejected.append(f"{other.job.title} {problem}")
        elif best is None or final.loss < best[1].loss:
            best = (other, final)
    found, final = best if best else (None, None)
    return Reference(arm=found, final=final, rejected=tuple(rejected))


def _problem(view: PilotView, gates: Gates, arm: ArmView, final: ValidationRecord | None) -> str:
    """Why this arm is no reference; empty when it is one."""
    if arm.outcome is None:
        return "was lost: no outcome" if arm.num_attempts else "was not run"
    finite = check_finite(view, gates, arm)
    if any(f.severity == FAIL for f in finite.findings):
        return "is not finite"
    if arm.outcome.status != Outcome.COMPLETED:
        return f"did not complete ({arm.outcome.status.replace('_', ' ')})"
    if final is None:
        return "has no final validation"
    reason = other_start(view, arm)
    return f"{OTHER_START}: {reason}" if reason else ""
