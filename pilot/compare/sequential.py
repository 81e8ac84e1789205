"""The early ending of an arm: a sequential test on its paired step losses. Pure.

At planned looks during the peak segment the differences (arm - baseline, same step, same rows) are
averaged over blocks of ``BLOCK_STEPS`` steps, which weakens their autocorrelation, and the block
means give a t interval. The error rate is split evenly over the planned looks (Bonferroni), so the
intervals of all looks hold together with 1 - ``error_rate`` whatever the correlation between the
looks, and every decision is read off them:

- *worse*, for an arm of a lower learning rate only: the whole interval is above the smallest effect
  that anyone would act on. A short run at the peak rate flatters low rates, so the cool-down would
  only widen the gap. Every other variable runs on to its cool-down.
- *no difference*, for an arm that has the baseline's learning rate at every step and whose
  variable does not act later by plan (``may_end_same``): the whole interval is within plus and
  minus that effect. (Equal losses at the peak of two *rates* say nothing: in a real pair with a
  mean difference of 0.002 the gap after the cool-down was 0.12.)
- Both need the mean of the last two blocks, and the straight line through all blocks at the end
  of the peak, to say the same: a difference that is about to cross the limit is not decided.
- *lost*, an arm that diverged without a non-finite number: its training loss has stayed above
  1.5 x its first value and the baseline's for 16 steps in a row. This is a limit, not an estimate:
  it has no interval, and it is for the objective ``lm`` only, whose loss starts high.

Steps before the first one at which the arm may differ are no evidence: looks count from there on.

Measured, ``python -m tests.benchmarks.sequential``, at a rate of 5 % with 128 peak steps and a step
sd 3.7 x the smallest effect, as in the default recipe; 20,000 arms each. Wrong decisions per arm in
the worst case, a true difference of exactly the smallest effect (*no difference* at 0.3 x that sd,
where it can be reached), and the peak steps until an arm of 4 or 8 times that effect ends as worse:

| noise of the steps     | wrong: worse | wrong: no difference | end, 4 times | end, 8 times |
|------------------------|--------------|----------------------|--------------|--------------|
| independent            | 1.5 %        | 1.4 %                | 50           | 36           |
| autocorrelation 0.3    | 1.6 %        | 1.6 %                | 58           | 39           |
| autocorrelation 0.6    | 2.5 %        | 2.2 %                | 73           | 43           |
| Student's t, 3 degrees | 1.2 %        | 1.2 %                | 48           | 35           |

No effect at all: worse in at most 0.2 %. A difference that falls in a line from 8 to -4 times the
smallest effect is called worse in 37 % (94 % without the line at the end of the peak): what turns
around after the look cannot be seen at the look. In 30 real pairs of the default recipe's variants
with an arm at a third of the rate, 11 ended as worse, at step 42 to 90 of 138, and all 11 were
worse after the cool-down, by 3 to 6 % of the loss.

Why not another test: O'Brien-Fleming spending ends an obvious arm a look later (46 instead of 33
peak steps) for the same error; the bound of Pocock ends 4 to 11 steps sooner, but at an
autocorrelation of 0.3 the intervals of one arm fail together in 6 % instead of 4 %; a confidence
sequence is valid at every step, of which only six are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pilot.arms.settings import Arms
from pilot.arms.specs import RATE
from pilot.checks.common import no_measure
from pilot.checks.early_damage import first_hold, smoothed
from pilot.compare.noise import NoiseFloor
from pilot.compare.paired import DIVERGED, LARGER, SAME, WORSE, peak_segment
from pilot.compare.paired_steps import step_interval
from pilot.folder import Job
from pilot.gates import EarlyDamageGate
from pilot.plan import Plan
from pilot.records import StepRecord
from pilot.view import ArmView, PilotView

FIRST_LOOK_STEPS, LOOK_EVERY_STEPS, LAST_LOOK_BEFORE_END_STEPS = 32, 16, 16
_EVERY_STEP = ("optim", "batch", "precision")
# The rule of the gate `early_damage` with its defaults: other gates do not change what an arm did.
# Held for longer: the gate only warns, and an optimizer's transient of a few steps recovers.
LOST_STEPS = 16
_LOST = EarlyDamageGate(hold_steps=LOST_STEPS)
LOST_RATIO = _LOST.max_loss_ratio


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Why an arm ends at ``step``; ``word`` as in the arms table, ``rule`` names what decided.

    ``rule``: ``worse``, ``no difference`` or ``lost`` (its word is *diverged*). ``half_width`` is
    None for ``lost``; ``reference_loss`` is the baseline's, ``error_rate`` that of the whole arm.
    """

    word: str
    rule: str
    value: float
    half_width: float | None
    reference_loss: float
    num_blocks: int
    num_looks: int
    error_rate: float
    step: int


def first_step_of(job: Job) -> int:
    """The first step at which the arm may differ from the baseline."""
    begin = job.start_step if job.fork_step is None else job.fork_step
    return max(begin + 1, job.first_difference_step or 0)


def looks(plan: Plan, first_step: int | None = None) -> tuple[int, ...]:
    """The steps at which an arm is looked at; none when it may differ at too few peak steps.

    In the peak segment, from ``first_step`` (the first that may differ) on: after
    ``FIRST_LOOK_STEPS`` steps, then every ``LOOK_EVERY_STEPS``, the last one
    ``LAST_LOOK_BEFORE_END_STEPS`` or more before the end: later there is little left to save.
    """
    peak = peak_segment(plan)
    if peak is None:
        return ()
    first = max(peak.first_step, first_step or 0)
    last = peak.last_step - LAST_LOOK_BEFORE_END_STEPS
    return tuple(range(first + FIRST_LOOK_STEPS - 1, last + 1, LOOK_EVERY_STEPS))


def decide_arm(
    view: PilotView, settings: Arms, arm: ArmView, *, at_step: int, floor: NoiseFloor
) -> Decision | None:
    """``lost``, else ``decide``, on the records of a pilot up to ``at_step``.

    Never without a baseline or where the loss is no measure of quality.
    """
    if view.baseline is None or no_measure(view):
        return None
    if damaged := lost(view, settings, arm, at_step=at_step):
        return damaged
    return decide(
        view.plan,
        settings,
        view.baseline.steps,
        arm.steps,
        at_step=at_step,
        lower_rate=lowers_rate(arm.job),
        may_end_same=may_end_same(arm.job),
        floor=floor,
        first_step=first_step_of(arm.job),
    )


def lowers_rate(job: Job) -> bool:
    """Whether the arm's one variable is a learning rate below the baseline's."""
    try:
        return job.variable == RATE and 0.0 < float(job.value) < float(job.baseline_value)
    except ValueError:
        return False


def may_end_same(job: Job) -> bool:
    """Whether equal losses so far may end the arm: its variable does not act later by plan.

    Settings of the optimizer, the batch and the precision act at every step. A schedule does not
    (``full_run.*``, the learning rate), a recipe's own key may act whenever its code says so, and
    what a second leaf does that follows the variable is not known.
    """
    section = job.variable.partition(".")[0]
    return section in _EVERY_STEP and job.variable != RATE and not job.follows


def decide(
    plan: Plan,
    settings: Arms,
    baseline_steps: Sequence[StepRecord],
    arm_steps: Sequence[StepRecord],
    *,
    at_step: int,
    lower_rate: bool,
    may_end_same: bool,
    floor: NoiseFloor,
    first_step: int = 1,
) -> Decision | None:
    """Whether the arm is decided at ``at_step`` by the intervals; later records are not used.

    ``first_step`` is the first that may differ, ``lower_rate`` allows *worse*, ``may_end_same``
    *no difference*. Other rows than the baseline's, or a missing record, at any step since
    ``first_step``: never decides. A loss that is not finite never enters; an arm with such losses
    is stopped elsewhere. Constant differences, also those that are all 0, have an interval of 0,
    run-to-run noise aside. Without known noise the interval is that of the steps alone, and
    *worse* becomes "larger loss, noise unknown".
    """
    planned = looks(plan, first_step)
    if at_step not in planned:
        return None
    found = step_interval(
        plan, baseline_steps, arm_steps, at_step=at_step, first_step=first_step,
        error_rate=settings.error_rate / len(planned), floor=floor,
    )  # fmt: skip
    if found is None:
        return None
    least = settings.min_effect_frac * found.reference_loss
    far, near = max(abs(found.recent), abs(found.outlook)), min(found.recent, found.outlook)
    within = abs(found.value) + found.half_width <= least and far <= least
    above = found.value - found.half_width > least and near > least
    if may_end_same and found.same_rate and within:
        word, rule = SAME, "no difference"
    elif lower_rate and above:
        word, rule = WORSE if found.noise_known else LARGER, "worse"
    else:
        return None
    return Decision(
        word=word, rule=rule, value=found.value, half_width=found.half_width,
        reference_loss=found.reference_loss, num_blocks=found.num_blocks, num_looks=len(planned),
        error_rate=settings.error_rate, step=at_step,
    )  # fmt: skip


def evidence_values(decision: Decision) -> dict[str, Any]:
    """The plain values of ``Evidence("early_end")``."""
    return {
        "word": decision.word,
        "rule": decision.rule,
        "value": decision.value,
        "half_width": decision.half_width,
        "reference_loss": decision.reference_loss,
        "num_blocks": decision.num_blocks,
        "num_looks": decision.num_looks,
        "error_rate": decision.error_rate,
    }


def lost(view: PilotView, settings: Arms, arm: ArmView, *, at_step: int) -> Decision | None:
    """Damage at ``at_step``: the smoothed loss has been far above two others for 16 steps.

    The rule of the gate ``early_damage``, for ``LOST_STEPS`` in a row: the median of the last 4
    finite losses is above ``LOST_RATIO`` x the arm's first loss, and above ``LOST_RATIO`` x the
    baseline's median at the same step: a hard stretch of data hits both. Never for objectives other
    than ``lm`` (their losses may begin near zero), for a first loss or a median of the baseline
    that is not positive, nor when one of these steps is missing or not finite.
    """
    mine = _finite(arm.steps, at_step)
    theirs = _finite(view.baseline.steps, at_step) if view.baseline else []
    is_lm = str(view.survey.get("objective", "lm")) == "lm"
    if not (is_lm and mine and theirs) or mine[0][1] <= 0.0:
        return None
    beside = dict(smoothed(theirs, _LOST.smooth_steps))
    recent = smoothed(mine, _LOST.smooth_steps)[-LOST_STEPS:]
    if [step for step, _ in recent] != list(range(at_step - LOST_STEPS + 1, at_step + 1)):
        return None
    if any(beside.get(step, 0.0) <= 0.0 for step, _ in recent):
        return None
    ratios = [(step, loss / max(mine[0][1], beside[step])) for step, loss in recent]
    if first_hold(ratios, LOST_RATIO, LOST_STEPS) is None:
        return None
    return Decision(
        word=DIVERGED, rule="lost", value=recent[-1][1] - beside[at_step], half_width=None,
        reference_loss=beside[at_step], num_blocks=0, num_looks=0,
        error_rate=settings.error_rate, step=at_step,
    )  # fmt: skip


def _finite(records: Sequence[StepRecord], at_step: int) -> list[tuple[int, float]]:
    return [(r.step, r.loss) for r in records if r.step <= at_step and math.isfinite(r.loss)]
