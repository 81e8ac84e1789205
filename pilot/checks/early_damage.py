"""Gate ``early_damage``: the training loss rises far above its start and stays there."""

from __future__ import annotations

import math
from statistics import median

from pilot.checks.common import num
from pilot.checks.registry import WARN, CheckResult, not_measured, register
from pilot.gates import EarlyDamageGate, Gates
from pilot.records import Finding
from pilot.view import ArmView, PilotView

NAME = "early_damage"
SOURCE = "measured on 14 runs of a 1M-parameter Llama; start-up transients of one step are normal"


@register(
    name=NAME,
    gate="early_damage",
    category="undetermined",
    limit_source=SOURCE,
    cost="none",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Warn when the smoothed loss exceeds ``max_loss_ratio`` x the loss at step 1 for some steps.

    Smoothed: the median of the last ``smooth_steps`` finite losses, full windows only. Non-finite
    losses are left out (the gate ``finite`` judges them). Not measured for objectives other than
    ``lm`` (their losses may be near zero or negative), for a first loss that is not finite or not
    positive, and for too few steps. A constant loss passes.
    """
    gate = gates.early_damage
    limit = (
        f"median of {gate.smooth_steps} losses at most {num(gate.max_loss_ratio)} x the first, "
        f"for {gate.hold_steps} steps"
    )
    objective = str(view.survey.get("objective", "lm"))
    if objective != "lm":
        return not_measured(f"the rule is for objective lm, not {objective}", limit)
    if not arm.steps:
        return not_measured("no step was recorded", limit)
    first = arm.steps[0].loss
    if not (math.isfinite(first) and first > 0.0):
        return not_measured(f"the first loss is {first:g}: no reference", limit)
    series = [(r.step, r.loss) for r in arm.steps if math.isfinite(r.loss)]
    if len(series) < gate.smooth_steps + gate.hold_steps - 1:
        return not_measured(f"{len(series)} finite losses are too few", limit)
    smooth = smoothed(series, gate.smooth_steps)
    step = first_hold(smooth, gate.max_loss_ratio * first, gate.hold_steps)
    worst = max(value for _, value in smooth) / first
    text = f"smoothed loss was at most {num(worst)} x its value at step {series[0][0]}"
    numbers = {"worst_ratio": worst, "first_loss": first, "step": step}
    if step is None:
        return CheckResult(measured=True, sentence=text, limit=limit, numbers=numbers)
    finding = _finding(step, worst, first, limit, gate)
    return CheckResult(
        measured=True, findings=(finding,), sentence=finding.sentence, limit=limit, numbers=numbers
    )


def smoothed(series: list[tuple[int, float]], width: int) -> list[tuple[int, float]]:
    """The median of the last ``width`` values at each (step, value), full windows only."""
    values = [value for _, value in series]
    return [
        (series[end - 1][0], float(median(values[end - width : end])))
        for end in range(width, len(values) + 1)
    ]


def first_hold(smooth: list[tuple[int, float]], bound: float, hold: int) -> int | None:
    """The step at which the smoothed loss has been above ``bound`` for ``hold`` steps."""
    run = 0
    for step, value in smooth:
        run = run + 1 if value > bound else 0
        if run >= hold:
            return step
    return None


def _finding(step: int, worst: float, first: float, limit: str, gate: EarlyDamageGate) -> Finding:
    return Finding(
        check=NAME,
        severity=WARN,
        category="undetermined",
        sentence=f"the smoothed loss stayed above {num(gate.max_loss_ratio)} x its first value "
        f"({num(first)}) at step {step}; at most {num(worst)} x",
        step=step,
        numbers={"worst_ratio": worst, "first_loss": first},
        limit=limit,
        limit_source=SOURCE,
        todo="compare with the lower learning-rate arm",
    )
