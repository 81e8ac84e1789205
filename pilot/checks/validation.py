"""Gate ``validation``: after the cool-down the model is not worse than before step 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from pilot.checks.common import change_text, last_validations, no_measure, num, place_text
from pilot.checks.registry import (
    FAIL,
    NOTE,
    UNDETERMINED,
    WARN,
    CheckResult,
    not_measured,
    register,
)
from pilot.compare.paired import MIN_EXAMPLES, Difference, paired_difference
from pilot.gates import Gates, ValidationGate
from pilot.plan import BEFORE
from pilot.records import Finding, ValidationRecord
from pilot.view import ArmView, PilotView

NAME = "validation"
SOURCE = "paired ratio estimator (Cochran 1977, ch. 6); one primary set decides, others warn (Holm)"


@dataclass(frozen=True, kw_only=True)
class _Pair:
    before: ValidationRecord
    after: ValidationRecord
    change: Difference | None
    problem: str


@register(
    name=NAME,
    gate="validation",
    category="undetermined",
    limit_source=SOURCE,
    cost="two validations per set",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Fail when the primary set is worse by more than ``num_se`` SE *and* ``max_rise_frac``.

    The paired difference is taken between ``before`` and the plan's final validation. Other sets
    only warn, at a level that Holm's rule shares among them. Not measured when one of the two is
    missing or not finite (the gate ``finite`` judges that), and for objectives whose loss is no
    measure of quality (rl, preference); undetermined with fewer than ``MIN_EXAMPLES`` examples or
    with different examples. Constant losses pass. A negative loss of a language model fails: the
    sum of -log p cannot be below 0, so the loss is not what it is said to be.
    """
    gate, final = gates.validation, view.plan.final_validation
    limit = (
        f"after the pilot at most {num(gate.num_se)} SE or {num(100 * gate.max_rise_frac)} % "
        f"above before step {view.plan.start_step + 1}"
    )
    if reason := no_measure(view):
        return not_measured(reason, limit)
    pairs = _pairs(arm, final)
    primary = next((pair for pair in pairs if pair.after.primary), None)
    if primary is None:
        return not_measured(f"no primary validation both before and {place_text(final)}", limit)
    if primary.change is not None and math.isnan(primary.change.value):
        return not_measured("the primary validation is not finite", limit)
    found = [_negative(view, primary, limit), _judge_primary(primary, gate, limit)]
    found.extend(_judge_others([p for p in pairs if p is not primary], gate, limit))
    return CheckResult(
        measured=True,
        findings=tuple(f for f in found if f is not None),
        sentence=_sentence(primary),
        limit=limit,
        numbers=_numbers(primary),
    )


def _negative(view: PilotView, pair: _Pair, limit: str) -> Finding | None:
    sums = (*pair.before.loss_sums, *pair.after.loss_sums)
    if str(view.survey.get("objective", "lm")) != "lm" or min(sums, default=0.0) >= 0.0:
        return None
    return Finding(
        check=NAME,
        severity=FAIL,
        category="implementation",
        sentence=f"the validation loss of an example is negative ({num(min(sums))}): a sum of "
        "-log p cannot be",
        step=pair.after.step,
        numbers={"smallest_loss_sum": min(sums)},
        limit=limit,
        limit_source="cross entropy of discrete tokens is at least 0",
        obj=pair.after.name,
        todo="check the sign of the loss, or set recipe.objective to what it is",
    )


def _pairs(arm: ArmView, final: str) -> list[_Pair]:
    records = last_validations(arm)
    pairs = []
    for (at, name), after in records.items():
        before = records.get((BEFORE, name))
        if at != final or before is None:
            continue
        try:
            change, problem = paired_difference(before, after), ""
        except ValueError as error:
            change, problem = None, str(error)
        pairs.append(_Pair(before=before, after=after, change=change, problem=problem))
    return pairs


def _sentence(pair: _Pair) -> str:
    if pair.change is None:
        return f"{pair.after.name}: not comparable: {pair.problem}"
    return (
        f"{pair.after.name} {num(pair.before.loss)} before step {pair.before.step + 1}, "
        f"{num(pair.after.loss)} {place_text(pair.after.at)}: {change_text(pair.change)}"
    )


def _numbers(pair: _Pair) -> dict[str, object]:
    change = pair.change
    return {
        "set": pair.after.name,
        "loss_before": pair.before.loss,
        "loss_after": pair.after.loss,
        "difference": change.value if change else None,
        "se": change.se if change else None,
        "num_examples": change.num_examples if change else None,
    }


def _risen(pair: _Pair, gate: ValidationGate, num_se: float) -> bool:
    change = pair.change
    if change is None or not change.worse(num_se):
        return False
    return change.value > gate.max_rise_frac * abs(pair.before.loss)


def _judge_primary(pair: _Pair, gate: ValidationGate, limit: str) -> Finding | None:
    if pair.change is None or not pair.change.estimated:
        todo = f"validate at least {MIN_EXAMPLES} examples with supervised tokens, always the same"
        return _finding(pair, UNDETERMINED, limit, todo)
    if _risen(pair, gate, gate.num_se):
        todo = "the run damages the model: compare with a lower rate, look at mask and labels"
        return _finding(pair, FAIL, limit, todo)
    if pair.change.worse(gate.num_se):
        return _finding(pair, NOTE, limit, "worse, but by less than the limit")
    return None


def _judge_others(pairs: Sequence[_Pair], gate: ValidationGate, limit: str) -> list[Finding]:
    """Holm: the k-th most significant of m sets is tested at level alpha / (m - k + 1)."""
    alpha = 1.0 - NormalDist().cdf(gate.num_se)
    ordered = sorted(pairs, key=lambda p: (-_score(p), p.after.name))
    found = []
    for place, pair in enumerate(ordered):
        level = alpha / (len(ordered) - place)
        if pair.change is None or not pair.change.worse(_quantile(level, gate.num_se)):
            break
        if _risen(pair, gate, gate.num_se):
            found.append(_finding(pair, WARN, limit, "not the primary set: it only warns"))
    return found


def _quantile(level: float, fallback: float) -> float:
    return NormalDist().inv_cdf(1.0 - level) if 0.0 < 1.0 - level < 1.0 else fallback


def _score(pair: _Pair) -> float:
    """How significantly worse, comparable between sets; minus infinity when not estimated.

    The normal quantile at about the tail probability of t (Abramowitz and Stegun, 26.7.8): so many
    standard errors of a small set say less than the same of a large one.
    """
    if pair.change is None or not pair.change.estimated:
        return float("-inf")
    if pair.change.se == 0.0:
        return float("inf") if pair.change.value > 0 else float("-inf")
    ratio, free = pair.change.value / pair.change.se, pair.change.num_examples - 1
    return ratio * (1.0 - 1.0 / (4 * free)) / math.sqrt(1.0 + ratio**2 / (2 * free))


def _finding(pair: _Pair, severity: str, limit: str, todo: str) -> Finding:
    return Finding(
        check=NAME,
        severity=severity,
        category="undetermined",
        sentence=_sentence(pair),
        step=pair.after.step,
        numbers=_numbers(pair),
        limit=limit,
        limit_source=SOURCE,
        obj=pair.after.name,
        todo=todo,
    )
