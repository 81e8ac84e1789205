"""The early ending of an arm: a sequential test on its paired step losses. Pure.

At planned looks during the peak segment the differences (arm - baseline, same step, same rows) are
averaged over blocks of ``BLOCK_STEPS`` steps, which weakens their autocorrelation, and the block
means give a t interval. The error rate is split evenly over the planned looks (Bonferroni), so the
intervals of all looks hold together with 1 - ``error_rate`` whatever the correlation between the
looks, and every decision is read off them:

- *worse*, for an arm of a lower learning rate only: the whole interval is above the smallest effect
  that anyone would act on. A short run at the peak rate flatters low rates, so the cool-down would
  only widen the gap. Every other variable runs on to its cool-down.
- *no difference*, for an arm that has the baseline's learning rate at every step: the whole
  interval is within plus and minus that effect. (Equal losses at the peak of two *rates* say
  nothing: in a real pair with a mean difference of 0.002 the gap after the cool-down was 0.12.)
- Both need the mean of the last two blocks, and the straight line through all blocks at the end
  of the peak, to say the same: a difference that is about to cross the limit is not decided.
- *lost*: the training loss has risen far above its start and the baseline's. This is a limit, not
  an estimate: it has no interval.

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
from pilot.compare.paired import LARGER, SAME, WORSE, peak_segment
from pilot.compare.paired_steps import step_interval
from pilot.folder import Job
from pilot.gates import EarlyDamageGate
from pilot.plan import Plan
from pilot.records import StepRecord
from pilot.view import ArmView, PilotView

FIRST_LOOK_STEPS, LOOK_EVERY_STEPS, LAST_LOOK_BEFORE_END_STEPS = 32, 16, 16
# The rule of the gate `early_damage` with its defaults: other gates do not change what an arm did.
_LOST = EarlyDamageGate()


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Why an arm ends at ``step``; ``word`` as in the arms table, ``rule`` names what decided.

    ``rule``: ``worse``, ``no difference``, ``identical`` (so far) or ``lost``. ``half_width`` is
    None for ``lost``; ``level`` is the baseline's loss, ``error_rate`` that of the whole arm.
    """

    word: str
    rule: str
    value: float
    half_width: float | None
    level: float
    num_blocks: int
    num_looks: int
    error_rate: float
    step: int


def looks(plan: Plan, fork_step: int | None = None) -> tuple[int, ...]:
    """The steps at which an arm is looked at; none when too few peak steps are its own.

    In the peak segment, from the fork on: after ``FIRST_LOOK_STEPS`` steps, then every
    ``LOOK_EVERY_STEPS``, the last one ``LAST_LOOK_BEFORE_END_STEPS`` or more before the end: later
    there is little left to save.
    """
    peak = peak_segment(plan)
    if peak is None:
        return ()
    first = max(peak.first_step, (fork_step or 0) + 1)
    last = peak.last_step - LAST_LOOK_BEFORE_END_STEPS
    return tuple(range(first + FIRST_LOOK_STEPS - 1, last + 1, LOOK_EVERY_STEPS))


def decide_arm(
    view: PilotView, settings: Arms, arm: ArmView, *, at_step: int, floor: NoiseFloor
) -> Decision | None:
    """``decide`` on the records of a pilot; never where the loss is no measure of quality."""
    if view.baseline is None or no_measure(view):
        return None
    return decide(
        view.plan,
        settings,
        view.baseline.steps,
        arm.steps,
        at_step=at_step,
        lower_rate=lowers_rate(arm.job),
        floor=floor,
        fork_step=arm.job.fork_step,
    )


def lowers_rate(job: Job) -> bool:
    """Whether the arm's one variable is a learning rate below the baseline's."""
    try:
        return job.variable == RATE and 0.0 < float(job.value) < float(job.baseline_value)
    except ValueError:
        return False


def decide(
    plan: Plan,
    settings: Arms,
    baseline_steps: Sequence[StepRecord],
    arm_steps: Sequence[StepRecord],
    *,
    at_step: int,
    lower_rate: bool,
    floor: NoiseFloor,
    fork_step: int | None = None,
) -> Decision | None:
    """Whether the arm is decided at ``at_step``; only records up to there are used.

    Other rows than the baseline's, or a missing record, at any step since the fork: never decides,
    except by ``lost``. A loss that is not finite never enters; an arm with such losses is stopped
    elsewhere. Constant differences have an interval of 0; if all are exactly 0 the arm is identical
    so far. With an unknown ``floor`` the interval is that of the steps alone, and *worse* becomes
    "larger loss, noise unknown".
    """
    if damaged := lost(settings, baseline_steps, arm_steps, at_step):
        return damaged
    if at_step not in looks(plan, fork_step):
        return None
    num_looks = len(looks(plan, fork_step))
    found = step_interval(
        plan, baseline_steps, arm_steps, at_step=at_step, fork_step=fork_step,
        error_rate=settings.error_rate / num_looks, floor=floor,
    )  # fmt: skip
    if found is None:
        return None
    least = settings.min_effect_frac * found.level
    far, near = max(abs(found.recent), abs(found.outlook)), min(found.recent, found.outlook)
    within = abs(found.value) + found.half_width <= least and far <= least
    above = found.value - found.half_width > least and near > least
    if found.identical or (found.same_rate and within):
        word, rule = SAME, "identical" if found.identical else "no difference"
    elif lower_rate and above:
        word, rule = LARGER if floor.sd_steps is None else WORSE, "worse"
    else:
        return None
    return Decision(
        word=word, rule=rule, value=found.value, half_width=found.half_width, level=found.level,
        num_blocks=found.num_blocks, num_looks=num_looks, error_rate=settings.error_rate,
        step=at_step,
    )  # fmt: skip


def evidence_values(decision: Decision) -> dict[str, Any]:
    """The plain values of ``Evidence("early_end")``."""
    return {
        "word": decision.word,
        "rule": decision.rule,
        "value": decision.value,
        "half_width": decision.half_width,
        "level": decision.level,
        "num_blocks": decision.num_blocks,
        "num_looks": decision.num_looks,
        "error_rate": decision.error_rate,
    }


def lost(
    settings: Arms,
    baseline_steps: Sequence[StepRecord],
    arm_steps: Sequence[StepRecord],
    at_step: int,
) -> Decision | None:
    """Damage at ``at_step``: smoothed, far above the arm's own start and the baseline, for steps.

    The rule of the gate ``early_damage``, and the same against the baseline's smoothed loss at the
    same step: a hard stretch of data hits both. A first loss that is not positive: never.
    """
    mine, theirs = _finite(arm_steps, at_step), _finite(baseline_steps, at_step)
    if not mine or not theirs or mine[0][1] <= 0.0:
        return None
    width, hold = _LOST.smooth_steps, _LOST.hold_steps
    beside = dict(smoothed(theirs, width))
    recent = smoothed(mine, width)[-hold:]
    if [step for step, _ in recent] != list(range(at_step - hold + 1, at_step + 1)):
        return None
    if any(beside.get(step, 0.0) <= 0.0 for step, _ in recent):
        return None
    ratios = [(step, loss / max(mine[0][1], beside[step])) for step, loss in recent]
    if first_hold(ratios, _LOST.max_loss_ratio, hold) is None:
        return None
    level = beside[at_step]
    return Decision(
        word=WORSE, rule="lost", value=recent[-1][1] - level, half_width=None, level=level,
        num_blocks=0, num_looks=0, error_rate=settings.error_rate, step=at_step,
    )  # fmt: skip


def _finite(records: Sequence[StepRecord], at_step: int) -> list[tuple[int, float]]:
    return [(r.step, r.loss) for r in records if r.step <= at_step and math.isfinite(r.loss)]
