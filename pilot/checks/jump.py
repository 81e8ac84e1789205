"""Gate ``movement``: no single step replaces the weights.

A re-initialised layer, a checkpoint that is loaded in the middle, an averaging that overwrites: the
loss may come back within the pilot, the training until then is lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from pilot.checks.common import num, plural
from pilot.checks.registry import FAIL, WARN, CheckResult, register
from pilot.gates import Gates
from pilot.records import Finding, StepRecord
from pilot.view import ArmView, PilotView

NAME = "weight_jump"
SOURCE = (
    "364 runs: healthy steps move at most 2.0 x as far as the median of the 16 before, heavy rows "
    "under plain SGD up to 14 x (0.1 of the norm), re-drawn weights 29 to 76 x (0.37 and more)"
)
MIN_RATIO, MAX_FRAC = 10.0, 0.25
_FEWEST, _BEFORE = 8, 16
LIMIT = (
    f"no step moves more than {MAX_FRAC} of the weights' norm and {num(MIN_RATIO)} x the median of "
    f"the {_BEFORE} before"
)


@register(
    name=NAME,
    gate="movement",
    category="implementation",
    limit_source=SOURCE,
    cost="none",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Fail on a step that moves the weights far beyond those before it, warn of smaller jumps.

    Compared are relative updates, and the same per learning rate (a restart of the schedule is no
    jump): both ratios must exceed ``MIN_RATIO``. It fails where the step also moves more than
    ``MAX_FRAC`` of the weights' norm. Steps whose update is NaN, inf or 0 are left out; a constant
    series passes, and so do fewer than nine steps: there is nothing to compare with. A run that
    replaces its weights on purpose (ReLoRA) leaves the check out (``checks.skip``).
    """
    steps = [r for r in arm.steps if 0.0 < r.relative_update < math.inf]
    if len(steps) <= _FEWEST:
        text = f"{plural(len(steps), 'step')} moved the weights: too few to compare"
        return CheckResult(measured=True, sentence=text, limit=LIMIT)
    ratios = [
        (_ratio(steps[max(0, k - _BEFORE) : k], steps[k]), steps[k])
        for k in range(_FEWEST, len(steps))
    ]
    jumps = [pair for pair in ratios if pair[0] >= MIN_RATIO]
    far = [pair for pair in jumps if pair[1].relative_update > MAX_FRAC]
    if not jumps:
        top = num(max(ratio for ratio, _ in ratios))
        text = f"no step moved the weights more than {top} x as far as those before it"
        return CheckResult(measured=True, sentence=text, limit=LIMIT)
    ratio, record = (far or jumps)[0]
    text = (
        f"step {record.step} moved the weights by {num(record.relative_update)} of their norm, "
        f"{num(ratio)} x as far as the {_BEFORE} steps before it"
    )
    if len(jumps) > 1:
        text += f" (and {plural(len(jumps) - 1, 'other step')} so)"
    finding = Finding(
        check=NAME,
        severity=FAIL if far else WARN,
        category="implementation" if far else "undetermined",
        sentence=text,
        step=record.step,
        numbers={"relative_update": record.relative_update, "ratio": ratio, "num": len(jumps)},
        limit=LIMIT,
        limit_source=SOURCE,
        todo="who writes the weights there? a callback, a re-initialisation, a loaded checkpoint",
    )
    return CheckResult(measured=True, findings=(finding,), sentence=text, limit=LIMIT)


def _ratio(before: Sequence[StepRecord], record: StepRecord) -> float:
    """How much further than the median of ``before``; the smaller of plain and per rate."""
    plain = record.relative_update / median(r.relative_update for r in before)
    rates = [r.learning_rate for r in (*before, record)]
    if not all(0.0 < rate < math.inf for rate in rates):
        return plain
    scaled = record.relative_update / record.learning_rate
    usual = median(r.relative_update / r.learning_rate for r in before)
    return min(plain, scaled / usual)
