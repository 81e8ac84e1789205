"""A note on clipping: how often, and how hard. Healthy fine-tunes often clip every step."""

from __future__ import annotations

import math
from statistics import median

from pilot.checks.common import num, plural
from pilot.checks.registry import NOTE, WARN, CheckResult, not_measured, register
from pilot.gates import Gates
from pilot.records import Finding
from pilot.view import ArmView, PilotView

NAME = "clipping"
SOURCE = (
    "clip fraction alone separates nothing; a median coefficient this low makes clipping the rule"
)
MIN_MEDIAN_COEF = 0.1
_EXCESS = 1.05  # the norm behind the clipping is rounded, and may be taken in bf16
LIMIT = f"median clip coefficient over the peak at least {MIN_MEDIAN_COEF}"


@register(
    name=NAME,
    gate=None,
    category="hyperparameter",
    limit_source=SOURCE,
    cost="none",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Note the share of clipped peak steps; warn when the median coefficient is under 0.1.

    It also warns of gradients above the clip norm that nothing clipped. Coefficients and norms that
    are not finite are left out. Without a clip norm, or without a peak step, nothing was measured.
    """
    max_norm = (view.config.get("optim") or {}).get("max_grad_norm")
    if arm.job.variable == "optim.max_grad_norm":
        max_norm = None if arm.job.value in ("", "null") else arm.job.value
    if max_norm is None:
        return not_measured("clipping is off (optim.max_grad_norm is null)", LIMIT)
    peak = [r for r in arm.steps if view.plan.schedule.is_peak(r.step)]
    if (finding := _not_clipped(arm, float(max_norm))) is not None:
        return CheckResult(
            measured=True, findings=(finding,), sentence=finding.sentence, limit=LIMIT
        )
    coefs = [r.clip_coef for r in peak if math.isfinite(r.clip_coef)]
    if not coefs:
        return not_measured("no step at the peak rate was recorded", LIMIT)
    middle, clipped = median(coefs), sum(c < 1.0 for c in coefs)
    hard = middle < MIN_MEDIAN_COEF
    text = (
        f"{clipped} of {plural(len(coefs), 'peak step')} clipped, median coefficient {num(middle)}"
    )
    finding = Finding(
        check=NAME,
        severity=WARN if hard else NOTE,
        category="hyperparameter",
        sentence=text,
        numbers={"clip_frac": clipped / len(coefs), "median_clip_coef": middle},
        limit=LIMIT,
        limit_source=SOURCE,
        todo="clipping decides the step size: compare with a lower rate" if hard else "",
    )
    return CheckResult(measured=True, findings=(finding,), sentence=text, limit=LIMIT)


def _not_clipped(arm: ArmView, max_norm: float) -> Finding | None:
    """Gradients above the clip norm that were used as they are, by more than rounding."""
    above = [r for r in arm.steps if _EXCESS * max_norm < r.grad_norm < math.inf]
    as_they_are = [r for r in above if r.clip_coef * r.grad_norm > _EXCESS * max_norm]
    if not as_they_are or max_norm <= 0.0:
        return None
    text = (
        f"the clip norm is {num(max_norm)}, and {len(as_they_are)} of "
        f"{plural(len(above), 'step')} above it were not clipped to it"
    )
    return Finding(
        check=NAME,
        severity=WARN,
        category="implementation",
        sentence=text,
        step=as_they_are[0].step,
        numbers={"num_not_clipped": len(as_they_are), "num_above": len(above)},
        limit="no gradient above the clip norm is used as it is, to 5 %",
        limit_source="optim.max_grad_norm: what the run says of itself",
        todo="who clips? look for a clip_grad_norm_ that is replaced, or a limit set elsewhere",
    )
