"""Gate ``movement``: a loss that is there, and no gradient at all."""

from __future__ import annotations

from pilot.checks.common import no_measure, num, plural
from pilot.checks.registry import FAIL, WARN, CheckResult, not_measured, register
from pilot.gates import Gates
from pilot.records import Finding, StepRecord
from pilot.view import ArmView, PilotView

NAME = "silent_gradients"
SOURCE = "a mean over supervised tokens has a gradient of exactly 0 only where something cut it off"
MIN_STEPS = 8
LIMIT = f"no {MIN_STEPS} last steps with a gradient norm of exactly 0 and a loss that is not"


@register(
    name=NAME,
    gate="movement",
    category="implementation",
    limit_source=SOURCE,
    cost="none",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Fail when the gradient is exactly 0 from some step to the end, warn when it is now and then.

    Counted are steps with a finite loss other than 0 on supervised tokens that were not skipped.
    Where the loss is no measure of quality (equal rewards have no gradient) it only warns. A norm
    that is NaN or inf is a gradient; a constant series other than 0 passes. Without a step, and
    under an engine that hides gradients, nothing was measured.
    """
    if not arm.steps:
        return not_measured("no step was recorded", LIMIT)
    if view.survey.get("not_measured"):  # who shares the gradients out keeps their norm
        return not_measured("the gradient norm of this engine may be unknown", LIMIT)
    silent = [_is_silent(record) for record in arm.steps]
    at_end = next((k for k, value in enumerate(reversed(silent)) if not value), len(silent))
    count = sum(silent)
    if not count:
        return CheckResult(
            measured=True, sentence="every step with a loss had a gradient", limit=LIMIT
        )
    stops = at_end >= min(MIN_STEPS, len(silent))
    first = arm.steps[len(silent) - at_end].step if stops else arm.steps[silent.index(True)].step
    where = (
        f"from step {first} to the end ({plural(at_end, 'step')})"
        if stops
        else f"at {plural(count, 'step')} of {len(silent)}, first at step {first}"
    )
    text = f"the gradient norm is exactly 0 {where}, though the loss is not"
    finding = Finding(
        check=NAME,
        severity=FAIL if stops and not no_measure(view) else WARN,
        category="implementation",
        sentence=text,
        step=first,
        numbers={"num_silent_steps": count, "silent_frac": float(num(count / len(silent)))},
        limit=LIMIT,
        limit_source=SOURCE,
        todo="who zeroes or detaches it? (nan_to_num, a hook, a clamp, a saturated loss, no_grad)",
    )
    return CheckResult(measured=True, findings=(finding,), sentence=text, limit=LIMIT)


def _is_silent(record: StepRecord) -> bool:
    has_loss = record.finite_loss and record.loss != 0.0 and record.num_supervised_tokens > 0
    return has_loss and record.grad_norm == 0.0 and not record.step_skipped
