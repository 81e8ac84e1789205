"""From which step an arm can differ from the baseline; before it, the two are provably the same.

Pure rules over the two configurations and the baseline's records. What is not known to be the same
counts as different.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pilot.arms.specs import CLIP, RATE
from pilot.config import Config
from pilot.folder import Job
from pilot.records import StepRecord
from pilot.schedule import TRAINER, full_schedule
from pilot.segments import cooldown_rate

# Norms this near to a limit, relatively, may be clipped or not: torch computes the factor in fp32.
_NEAR = 1e-5
NEVER_CLIPPED = "never clipped: identical"
SAME_CLIPPING = "clipped alike at every step: identical"
SAME_RATES = "the same learning rate at every step: identical"


def first_difference(
    job: Job, baseline: Config, arm: Config, records: Sequence[StepRecord], num_rows: int
) -> int | None:
    """The first step at which ``arm`` may differ; None: at no step of the pilot.

    Args:
        job: the arm's job, with no ``follows``: a second leaf that changes may act from step 1 on.
        baseline: the baseline's configuration.
        arm: the arm's configuration.
        records: all step records of the baseline, its cool-down included, without a gap.
        num_rows: training rows, from which epochs become steps.
    """
    first = job.start_step + 1
    if job.follows or _is_restored(job, baseline):
        return first
    if job.variable == CLIP:
        return _first_clip(baseline.optim.max_grad_norm, arm.optim.max_grad_norm, records)
    if TRAINER in (baseline.full_run.schedule, arm.full_run.schedule) and job.variable != CLIP:
        return first  # what its own scheduler plans, only its process knows
    if job.variable == RATE or job.variable.startswith("full_run."):
        return _first_rate(job, baseline, arm, num_rows)
    return first


def _is_restored(job: Job, baseline: Config) -> bool:
    """Whether the baseline's state brings its own rate: a Trainer's optimizer has it inside."""
    return job.variable == RATE and baseline.engine.name == "transformers"


def why_identical(job: Job, baseline: Config) -> str:
    """The words for an arm that never differs."""
    if job.variable != CLIP:
        return SAME_RATES
    return NEVER_CLIPPED if None in (baseline.optim.max_grad_norm, _null(job)) else SAME_CLIPPING


def _null(job: Job) -> str | None:
    return None if job.value == "null" else job.value


def _first_clip(
    limit: float | None, other: float | None, records: Sequence[StepRecord]
) -> int | None:
    """The first step whose gradient may be multiplied by another factor. NaN: differs."""
    for record in records:
        norm = record.grad_norm
        near = any(bound and abs(norm / bound - 1.0) < _NEAR for bound in (limit, other))
        if not math.isfinite(norm) or near or _factor(limit, norm) != _factor(other, norm):
            return record.step
    return None


def _factor(limit: float | None, norm: float) -> float:
    """What ``clip_grad_norm_`` multiplies with: max/(norm + 1e-6), at most 1."""
    return 1.0 if limit is None else min(1.0, limit / (norm + 1e-6))


def _first_rate(job: Job, baseline: Config, arm: Config, num_rows: int) -> int | None:
    one, other = full_schedule(baseline, num_rows), full_schedule(arm, num_rows)
    for step in range(job.start_step + 1, job.stop_step + 1):
        if one.learning_rate_at(step) != other.learning_rate_at(step):
            return step
    for index in range(1, job.cooldown_steps + 1):
        rates = [cooldown_rate(s, job.stop_step, job.cooldown_steps, index) for s in (one, other)]
        if rates[0] != rates[1]:
            return job.stop_step + index
    return None
