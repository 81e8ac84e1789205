"""Whether an arm began where the baseline did, and measures the same loss. Pure.

Before its first step an arm has the weights of the baseline, so its validation has the same loss.
Another loss says that weights are drawn from a generator without a seed, or that the changed
setting is part of the loss (``label_smoothing_factor``): then what it ends with is no effect.
"""

from __future__ import annotations

import math

from pilot.arms.specs import REPLICA
from pilot.compare.paired import mean_loss
from pilot.plan import BEFORE
from pilot.view import ArmView, PilotView

# Relative to the loss. Source: 533 arms on CPUs differ by exactly 0, but for smoothed labels (8e-5)
# and weights without a seed (5e-3). The rest is room for other kernels (candidates, not measured).
_MAX_FRAC_FP32, _MAX_FRAC_LOW = 1e-5, 1e-3
_ROUNDS = ("batch.", "engine.")  # the same weights, rounded otherwise
_ARITHMETIC = ("tf32", "bf16_full_eval", "fp16_full_eval", "use_cpu")
_SEED = "pilot.seed"
_ARGUMENTS = "recipe.arguments."


def other_start(view: PilotView, arm: ArmView) -> str:
    """Why what ``arm`` ends with is not comparable; empty: it began as the baseline did.

    Not asked of a replica (another seed), of arms of precision and of a recipe's own key, which may
    build another model on purpose. A validation that is missing or not finite: empty, others tell.
    """
    if view.baseline is None or arm.job.role == REPLICA or _may_differ(arm.job.variable):
        return ""
    records = [side.validation(BEFORE) for side in (view.baseline, arm)]
    if records[0] is None or records[1] is None:
        return ""
    before, own = mean_loss(records[0]), mean_loss(records[1])
    limit = _max_frac(view, arm.job.variable) * abs(before)
    if not math.isfinite(before) or not math.isfinite(own) or abs(own - before) <= limit:
        return ""
    where = f"before step {view.plan.start_step + 1} its loss is {own:.7g}, the baseline's"
    if arm.job.variable.startswith(_ARGUMENTS):
        why = "the change is part of the loss that is measured, or of the weights at the start"
    else:
        why = "the weights at the start, or the measure, are not the same in every process"
    return f"{where} {before:.7g}: {why}"


def _may_differ(variable: str) -> bool:
    if variable.startswith(_ARGUMENTS):
        return variable.removeprefix(_ARGUMENTS) in _ARITHMETIC
    return variable in (_SEED, "precision") or variable.startswith("recipe.")


def _max_frac(view: PilotView, variable: str) -> float:
    exact = view.config.get("precision") in ("fp32", "fp64") and not variable.startswith(_ROUNDS)
    return _MAX_FRAC_FP32 if exact else _MAX_FRAC_LOW
