"""Which mistake with a scheduler explains the rates that were used, where the numbers prove it.

Pure. After k - 1 finished steps a scheduler should have been stepped k - 1 times. A hypothesis says
how often it was stepped instead; it is taken only if it explains every step that it can be asked
about, on rates that are not all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from pilot.checks.common import num, plural
from pilot.schedule import Schedule, same_rate

Pair = tuple[int, float]  # step, the rate that was used
_MIN_STEPS = 4  # of different planned rates, or anything explains them
_MAX_STRIDE = 8  # scheduler steps per optimizer step that are tried without another reason


def explain(
    pairs: Sequence[Pair], plan: Schedule, first: int, micro: Mapping[int, int], num_processes: int
) -> str:
    """One clause on what happened, or an empty string.

    Args:
        pairs: the finite rates that were used, by step.
        plan: the planned schedule.
        first: the first step of the run.
        micro: the number of micro-batches of each step; an epoch's last step may have fewer.
        num_processes: processes that train together.
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
    for asked, words in _hypotheses(pairs, first, micro, num_processes):
        if _explains(pairs, plan, asked):
            return words
    return ""


def _hypotheses(
    pairs: Sequence[Pair], first: int, micro: Mapping[int, int], num_processes: int
) -> Iterator[tuple[Callable[[int], int], str]]:
    """For each step the step whose planned rate it then has, and the words; simplest first."""
    late = pairs[0][0] - 1
    if late > 0:
        yield lambda step: step - late, f"the schedule begins anew with step {pairs[0][0]}"
    for ahead in (-1, 1, -2, 2):
        what = "behind" if ahead < 0 else "ahead of"
        words = f"the schedule is {plural(abs(ahead), 'step')} {what} the plan at every step"
        yield partial(_linear, first, 1, ahead), words
    if max(micro.values(), default=1) > 1:
        yield from _per_micro_batch(first, micro)
    strides = {num_processes, *range(2, _MAX_STRIDE + 1)} - {0, 1}
    for stride in sorted(strides, key=lambda count: (count != num_processes, count)):
        times = f"the scheduler is stepped {stride} times per optimizer step"
        words = f"{times}: once per process" if stride == num_processes else times
        yield from ((partial(_linear, first, stride, ahead), words) for ahead in range(stride + 1))


def _linear(first: int, stride: int, ahead: int, step: int) -> int:
    return first + (step - first) * stride + ahead


def _per_micro_batch(
    first: int, micro: Mapping[int, int]
) -> Iterator[tuple[Callable[[int], int], str]]:
    """Stepped for the micro-batches: for all of them or all but a step's last, before or after."""
    before: dict[int, int] = {}
    total = 0
    for step in sorted(micro):
        before[step], total = total, total + micro[step]
    most = max(micro.values())
    once = f"{most} times per optimizer step: once per micro-batch"
    both = (
        f"{most + 1} times per optimizer step: once per micro-batch, and once more by the Trainer"
    )
    own = {  # how often it was stepped before a step's update, by what steps it
        both: lambda step: before[step] + micro[step] + step - first,
        once: lambda step: before[step] + micro[step] - 1,
        f"{once} ": lambda step: before[step] + micro[step],
        f"{once}  ": lambda step: before[step],
        f"{both} ": lambda step: before[step] + step - first,
    }
    for words, count in own.items():
        yield partial(_counted, first, count), f"the scheduler is stepped {words.rstrip()}"


def _counted(first: int, count: Callable[[int], int], step: int) -> int:
    return first + count(step)


def _explains(pairs: Sequence[Pair], plan: Schedule, asked: Callable[[int], int]) -> bool:
    """Whether every rate is the planned one of the step that the hypothesis names."""
    expected: list[float] = []
    for step, rate in pairs:
        other = max(1, asked(step))
        if not plan.knows(other):
            continue
        expected.append(plan.learning_rate_at(other))
        if not same_rate(rate, expected[-1], plan.peak_rate):
            return False
    return len(set(expected)) >= _MIN_STEPS


def _scale(pairs: Sequence[Pair], plan: Schedule) -> float | None:
    """The one factor between the rates and the plan, or None."""
    planned = [plan.learning_rate_at(step) for step, _ in pairs]
    ratios = [rate / own for (_, rate), own in zip(pairs, planned, strict=True) if own > 0.0]
    zeros = [rate for (_, rate), own in zip(pairs, planned, strict=True) if own == 0.0]
    if len(ratios) < _MIN_STEPS or any(zeros) or ratios[0] <= 0.0:
        return None
    alike = all(same_rate(ratio, ratios[0], ratios[0]) for ratio in ratios)
    return ratios[0] if alike else None
