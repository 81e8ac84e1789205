"""Gate ``progress``: finite, quiet and ruined is not GO.

Decision table (all losses after the cool-down, on the primary set, paired by example; *gains* means
below ``before`` by more than ``num_se`` standard errors and by at least ``min_gain_frac`` of val0;
*next to nothing*: by the standard errors, but not by that share. The reference gains by the
standard errors alone. p = (val0 - val) / (val0 - val_ref); gap = val - val_ref; the reference is
the best stable arm of a lower rate):

| this run                  | reference              | result                                     |
|---------------------------|------------------------|--------------------------------------------|
| not validated, not finite | any                    | not measured (outcome or finite decides)   |
| an rl or preference loss  | any                    | not measured: no measure of quality        |
| fewer than MIN_EXAMPLES   | any                    | undetermined                               |
| gains                     | none, lost, not finite | undetermined: a ruined model gains too     |
| does not gain             | none, lost, not finite | undetermined: finite is not learning       |
| gains                     | does not gain          | pass                                       |
| does not gain             | does not gain          | undetermined: finite is not learning       |
| next to nothing           | none, or does not gain | undetermined: next to nothing              |
| any                       | gains                  | p low and gap high: fail, when the gap is  |
|                           |                        | above ``num_se`` SE; else undetermined     |
| gains                     | gains                  | one of the two: warn; none: pass           |
| does not gain             | gains                  | otherwise undetermined                     |
| next to nothing           | gains                  | otherwise undetermined: next to nothing    |

Where p exceeds ``MAX_LINEAR_P`` the sentence adds that the rate may be far too low.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pilot.arms.specs import RATE
from pilot.checks.common import change_text, no_measure, num, place_text, plural
from pilot.checks.reference import OTHER_START, best_reference
from pilot.checks.registry import (
    FAIL,
    UNDETERMINED,
    WARN,
    CheckResult,
    not_measured,
    register,
)
from pilot.compare.paired import MIN_EXAMPLES, Difference, paired_difference
from pilot.gates import Gates, ProgressGate
from pilot.plan import BEFORE
from pilot.records import Finding, ValidationRecord
from pilot.view import ArmView, PilotView

NAME = "progress"
SOURCE = (
    "measured with a 1M-parameter Llama: sound rates gain at least 0.97 x what their reference "
    "gains, ten times the good rate at most 0.64"
)
# The reference trains at a third of the rate: where the gain is in proportion to the rate, p is 3.
MAX_LINEAR_P = 2.5
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

    Not measured for objectives whose loss is no measure of quality (rl, preference). The
    module's table is the rule. NaN or inf in the run's validation: not measured; in an arm: it is
    no reference. Constant losses are no gain.
    """
    gate = gates.progress
    limit = (
        f"a gain of at least {num(gate.min_progress)} x the reference's, or a gap of at most "
        f"{num(100 * gate.max_gap_frac)} % of the loss before step {view.plan.start_step + 1}; "
        f"gain at least {num(100 * gate.min_gain_frac)} % of it"
    )
    if reason := no_measure(view):
        return not_measured(reason, limit)
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
        examples = plural(own.num_examples, "example")
        text = f"{examples} with supervised tokens: fewer than {MIN_EXAMPLES} decide nothing"
        return _result(UNDETERMINED, text, {}, final, limit, "validate more rows")
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
        first = view.plan.start_step + 1
        text = _alone(own, before.loss, gates.progress, reference.rejected, first)
        elsewhere = any(OTHER_START in reason for reason in reference.rejected)
        todo = "seed whatever draws the weights: each process must begin with the same" * elsewhere
        return _result(UNDETERMINED, text, _numbers(own), final, limit, todo)
    try:
        measured = _Measured(
            title=reference.arm.job.title,
            override=f"{RATE}={reference.arm.job.value}",
            val0=before.loss,
            own=own,
            other=paired_difference(before, reference.final),
            gap=paired_difference(reference.final, final),
        )
    except ValueError as error:
        return _result(UNDETERMINED, f"no reference: {error}", _numbers(own), final, limit)
    severity, text, todo = _judge(measured, gates.progress)
    return _result(severity, text, _all_numbers(measured), final, limit, todo)


def _gains(own: Difference, val0: float, gate: ProgressGate) -> bool:
    """Certainly, and by enough to be called learning."""
    return own.better(gate.num_se) and -own.value >= gate.min_gain_frac * abs(val0)


def _next_to_nothing(own: Difference, val0: float, gate: ProgressGate) -> str:
    """The words for a certain gain below the floor; empty otherwise (so where val0 is 0)."""
    if not own.better(gate.num_se) or _gains(own, val0, gate):
        return ""
    share = num(100 * -own.value / abs(val0))
    return f"gains only {share} % of the loss before: next to nothing"


def _alone(
    own: Difference, val0: float, gate: ProgressGate, rejected: tuple[str, ...], first: int
) -> str:
    why = "; ".join(rejected) or "no arm of a lower rate ran"
    if little := _next_to_nothing(own, val0, gate):
        return f"{little}: {change_text(own)}, and no reference ({why})"
    if own.better(gate.num_se):
        return (
            f"better than before step {first} by {change_text(own)}, but so is many a ruined run: "
            f"no reference ({why})"
        )
    return (
        f"no gain over before step {first}: {change_text(own)}, and no reference ({why}); {_FUSE}"
    )


def _judge(m: _Measured, gate: ProgressGate) -> tuple[str, str, str]:
    """Severity (empty: pass), sentence and what to do, where there is a reference."""
    if m.other.better(gate.num_se):
        return _both(m, gate)
    text = f"change {change_text(m.own)}, {m.title} {change_text(m.other)}"
    if _gains(m.own, m.val0, gate):
        return "", f"{text}: {m.title} does not gain, this run does", ""
    if little := _next_to_nothing(m.own, m.val0, gate):
        todo = "train longer, or try a higher rate"
        return UNDETERMINED, f"{little}: {text}, which does not gain", todo
    return UNDETERMINED, f"{text}: neither gains; {_FUSE}", "train longer, or validate more rows"


def _both(m: _Measured, gate: ProgressGate) -> tuple[str, str, str]:
    """The rows of the table in which the reference gains."""
    low = m.progress < gate.min_progress
    wide = m.gap.value > gate.max_gap_frac * abs(m.val0)
    share = m.gap.value / abs(m.val0) if m.val0 else math.inf
    text = (
        f"gains {m.progress:.3g} x what {m.title} gains, gap {100 * share:.3g} % of the loss "
        f"before: {change_text(m.gap)}"
    )
    if m.progress > MAX_LINEAR_P:
        text += "; the gain is still proportional to the rate: the rate may be far too low"
    todo = f"try {m.override}"
    if low and wide:
        if m.gap.worse(gate.num_se):
            return FAIL, f"learns too little: {text}", todo
        return UNDETERMINED, f"the gap is not above its noise: {text}", "validate more rows"
    if little := _next_to_nothing(m.own, m.val0, gate):
        return UNDETERMINED, f"{little}: {text}", "train longer, or try a higher rate"
    if not m.own.better(gate.num_se):
        return UNDETERMINED, f"does not gain while {m.title} does: {text}; {_FUSE}", todo
    return (WARN, text, todo) if low or wide else ("", text, "")


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
