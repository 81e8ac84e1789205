"""Gate ``progress``: finite, quiet and ruined is not GO.

Decision table (all losses after the cool-down, on the primary set, paired by example; *gains* means
below ``before`` by more than ``num_se`` standard errors; p = (val0 - val) / (val0 - val_ref);
gap = val - val_ref; the reference is the best stable arm of a lower rate):

| this run                  | reference              | result                                     |
|---------------------------|------------------------|--------------------------------------------|
| not validated, not finite | any                    | not measured (outcome or finite decides)   |
| fewer than two examples   | any                    | undetermined                               |
| gains                     | none, lost, not finite | undetermined: a ruined model gains too     |
| does not gain             | none, lost, not finite | undetermined: finite is not learning       |
| gains                     | does not gain          | pass                                       |
| does not gain             | does not gain          | undetermined: finite is not learning       |
| any                       | gains                  | p low and gap high: fail, when the gap is  |
|                           |                        | above ``num_se`` SE; else undetermined     |
| gains                     | gains                  | one of the two: warn; none: pass           |
| does not gain             | gains                  | otherwise undetermined                     |
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pilot.checks.common import change_text, num, place_text
from pilot.checks.reference import VARIABLE, best_reference
from pilot.checks.registry import (
    FAIL,
    UNDETERMINED,
    WARN,
    CheckResult,
    not_measured,
    register,
)
from pilot.compare import Difference, paired_difference
from pilot.gates import Gates, ProgressGate
from pilot.plan import BEFORE
from pilot.records import Finding, ValidationRecord
from pilot.view import ArmView, PilotView

NAME = "progress"
SOURCE = "measured p: sound runs 0.83 to 0.97, ruined ones at most 0.51 (1M-parameter Llama)"
_FUSE = "finite but not learning is not GO: clipping is a fuse, not a cure"


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """Gain of the run, gain of the reference, and the gap between them."""

    title: str
    override: str
    val0: float
    own: Difference
    other: Difference
    gap: Difference

    @property
    def progress(self) -> float:
        """p; NaN when the reference did not move."""
        return self.own.value / self.other.value if self.other.value else math.nan


@register(
    name=NAME,
    gate="progress",
    category="undetermined",
    limit_source=SOURCE,
    cost="one arm at a lower learning rate, as long as the baseline",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Compare the gain of ``arm`` with that of the best stable arm of a lower rate.

    The module's table is the rule. NaN or inf in the run's validation: not measured; in an arm: it
    is no reference. Constant losses are no gain.
    """
    gate = gates.progress
    limit = (
        f"p at least {num(gate.min_progress)} or a gap of at most "
        f"{num(100 * gate.max_gap_frac)} % of the loss before step 1"
    )
    before, final = arm.validation(BEFORE), arm.validation(view.plan.final_validation)
    if before is None or final is None:
        return not_measured(
            f"no validation both before and {place_text(view.plan.final_validation)}", limit
        )
    try:
        own = paired_difference(before, final)
    except ValueError as error:
        return _result(UNDETERMINED, f"not comparable: {error}", {}, final, limit)
    if not math.isfinite(own.value):
        return not_measured("the validation is not finite", limit)
    if not own.estimated:
        text = f"{own.num_examples} example: no standard error"
        return _result(UNDETERMINED, text, {}, final, limit)
    return _against_reference(view, gates, arm, own, before, final, limit)


def _against_reference(
    view: PilotView,
    gates: Gates,
    arm: ArmView,
    own: Difference,
    before: ValidationRecord,
    final: ValidationRecord,
    limit: str,
) -> CheckResult:
    """The rows of the table in which the run's own change is estimated."""
    reference = best_reference(view, gates, arm)
    if reference.arm is None or reference.final is None:
        text = _alone(own, gates.progress, reference.rejected)
        return _result(UNDETERMINED, text, _numbers(own), final, limit)
    try:
        measured = _Measured(
            title=reference.arm.job.title,
            override=f"{VARIABLE}={reference.arm.job.value}",
            val0=before.loss,
            own=own,
            other=paired_difference(before, reference.final),
            gap=paired_difference(reference.final, final),
        )
    except ValueError as error:
        return _result(UNDETERMINED, f"no reference: {error}", _numbers(own), final, limit)
    severity, text, todo = _judge(measured, gates.progress)
    return _result(severity, text, _all_numbers(measured), final, limit, todo)


def _alone(own: Difference, gate: ProgressGate, rejected: tuple[str, ...]) -> str:
    why = "; ".join(rejected) or "no arm of a lower rate ran"
    if own.better(gate.num_se):
        return (
            f"better than before step 1 by {change_text(own)}, but so is many a ruined run: "
            f"no reference ({why})"
        )
    return f"no gain over before step 1: {change_text(own)}, and no reference ({why}); {_FUSE}"


def _judge(m: _Measured, gate: ProgressGate) -> tuple[str, str, str]:
    """Severity (empty: pass), sentence and what to do, where there is a reference."""
    gains, other_gains = m.own.better(gate.num_se), m.other.better(gate.num_se)
    text = f"change {change_text(m.own)}, {m.title} {change_text(m.other)}"
    if not other_gains:
        if gains:
            return "", f"{text}: {m.title} does not gain, this run does", ""
        return (
            UNDETERMINED,
            f"{text}: neither gains; {_FUSE}",
            "train longer, or validate more rows",
        )
    low = m.progress < gate.min_progress
    wide = m.gap.value > gate.max_gap_frac * abs(m.val0)
    share = m.gap.value / abs(m.val0) if m.val0 else math.inf
    text = (
        f"p = {m.progress:.3g} against {m.title}, gap {100 * share:.3g} % of the loss before: "
        f"{change_text(m.gap)}"
    )
    todo = f"try {m.override}"
    if low and wide:
        if m.gap.worse(gate.num_se):
            return FAIL, f"learns too little: {text}", todo
        return UNDETERMINED, f"the gap is not above its noise: {text}", "validate more rows"
    if not gains:
        return UNDETERMINED, f"does not gain while {m.title} does: {text}; {_FUSE}", todo
    if low or wide:
        return WARN, text, todo
    return "", text, ""


def _numbers(own: Difference) -> dict[str, object]:
    return {"change": own.value, "se": own.se, "num_examples": own.num_examples}


def _all_numbers(m: _Measured) -> dict[str, object]:
    return {
        **_numbers(m.own),
        "reference": m.title,
        "reference_override": m.override,
        "reference_change": m.other.value,
        "reference_se": m.other.se,
        "gap": m.gap.value,
        "gap_se": m.gap.se,
        "progress": m.progress,
    }


def _result(
    severity: str,
    text: str,
    numbers: dict[str, object],
    final: ValidationRecord,
    limit: str,
    todo: str = "",
) -> CheckResult:
    findings: tuple[Finding, ...] = ()
    if severity:
        findings = (
            Finding(
                check=NAME,
                severity=severity,
                category="undetermined",
                sentence=text,
                step=final.step,
                numbers=numbers,
                limit=limit,
                limit_source=SOURCE,
                obj=final.name,
                todo=todo or "give the pilot a stable arm of a lower rate",
            ),
        )
    return CheckResult(
        measured=True, findings=findings, sentence=text, limit=limit, numbers=numbers
    )
