"""Which mistake with a scheduler explains the rates that were used, where the numbers prove it.

Pure. After k - 1 finished steps a scheduler should have been stepped k - 1 times. A hypothesis says
how often it was stepped instead; it is taken only if it explains every step that it can be asked
about, on rates that are not all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pilot.checks.common import num, plural
from pilot.schedule import Schedule, same_rate

Pair = tuple[int, float]  # step, the rate that was used
_MIN_STEPS = 4  # of different planned rates, or anything explains them
_MAX_STRIDE = 8  # scheduler steps per optimizer step that are tried without another reason


def explain(pairs: Sequence[Pair], plan: Schedule, first: int, per_step: Sequence[int]) -> str:
    """One clause on what happened, or an empty string.

    Args:
        pairs: the finite rates that were used, by step.
        plan: the planned schedule.
        first: the first step of the run.
        per_step: numbers of micro-batches and of processes, tried beside the small strides.
    """
    if len(pairs) < _MIN_STEPS:
        return ""
    scale = _scale(pairs, plan)
    if scale is not None:
        return f"every rate is {num(scale)} times the planned one"
    if all(same_rate(rate, pairs[0][1], plan.peak_rate) for _, rate in pairs):
        begin = plan.knows(first) and same_rate(
            pairs[0][1], plan.learning_rate_at(first), plan.peak_rate
        )
        never = ", the first one's: the scheduler is never stepped" if begin else ""
        return f"it is {num(pairs[0][1])} at every step{never}"
    late = pairs[0][0] - 1
    if late > 0 and _explains(pairs, plan, first, 1, -late):
        return f"the schedule begins anew with step {pairs[0][0]}"
    for stride, ahead in _hypotheses(per_step):
        if _explains(pairs, plan, first, stride, ahead):
            return _words(stride, ahead, per_step)
    return ""


def _hypotheses(per_step: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Scheduler steps per optimizer step, and steps ahead at the first one; simplest first."""
    yield from ((1, ahead) for ahead in (-1, 1, -2, 2))
    strides = {*per_step, *(count + 1 for count in per_step), *range(2, _MAX_STRIDE + 1)}
    for stride in sorted(strides - {0, 1}):
        yield from ((stride, ahead) for ahead in range(stride + 1))


def _explains(pairs: Sequence[Pair], plan: Schedule, first: int, stride: int, ahead: int) -> bool:
    """Whether every rate is the planned one of the step that the hypothesis names."""
    expected: list[float] = []
    for step, rate in pairs:
        asked = max(1, first + (step - first) * stride + ahead)
        if not plan.knows(asked):
            continue
        expected.append(plan.learning_rate_at(asked))
        if not same_rate(rate, expected[-1], plan.peak_rate):
            return False
    return len(expected) >= _MIN_STEPS and len(set(expected)) >= _MIN_STEPS


def _scale(pairs: Sequence[Pair], plan: Schedule) -> float | None:
    """The one factor between the rates and the plan, or None."""
    planned = [plan.learning_rate_at(step) for step, _ in pairs]
    ratios = [rate / own for (_, rate), own in zip(pairs, planned, strict=True) if own > 0.0]
    zeros = [rate for (_, rate), own in zip(pairs, planned, strict=True) if own == 0.0]
    if len(ratios) < _MIN_STEPS or any(zeros) or ratios[0] <= 0.0:
        return None
    alike = all(same_rate(ratio, ratios[0], ratios[0]) for ratio in ratios)
    return ratios[0] if alike else None


def _words(stride: int, ahead: int, per_step: Sequence[int]) -> str:
    if stride == 1:
        what = "behind" if ahead < 0 else "ahead of"
        return f"the schedule is {plural(abs(ahead), 'step')} {what} the plan at every step"
    times = f"the scheduler is stepped {stride} times per optimizer step"
    accumulated, *others = per_step
    if stride == accumulated:
        return f"{times}: once per micro-batch"
    if accumulated > 1 and stride == accumulated + 1:
        return f"{times}: once per micro-batch, and once more by the Trainer"
    if stride in others:
        return f"{times}: once per process"
    return times
