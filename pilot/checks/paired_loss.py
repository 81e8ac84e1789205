"""The training loss beside that of the arm at a lower rate, on the same batches.

The differences step by step have a fraction of the noise of the losses themselves (sd 0.11 against
0.28 on a one-million-parameter Llama: about seven times fewer steps for the same power), so an
update that is too large shows in a few dozen steps. It only warns: at the peak rate a short run
flatters low rates; what counts is the gap after the cool-down (gate ``progress``).
"""

from __future__ import annotations

from pilot.checks.common import no_measure, num
from pilot.checks.reference import best_reference
from pilot.checks.registry import WARN, CheckResult, not_measured, register
from pilot.compare.noise import UNKNOWN
from pilot.compare.paired_steps import BLOCK_STEPS, StepInterval, step_interval
from pilot.gates import Gates
from pilot.records import Finding
from pilot.view import ArmView, PilotView

NAME = "paired_loss"
ERROR_RATE = 0.01
MIN_GAP_FRAC = 0.03
SOURCE = (
    "a t interval of blocks of 8 steps at 99 %; 3 %: below it a rate that is right may lag at the "
    "peak and win after the cool-down"
)
LIMIT = f"the 99 % interval of the difference reaches below {num(100 * MIN_GAP_FRAC)} % of the loss"


@register(
    name=NAME,
    gate=None,
    category="hyperparameter",
    limit_source=SOURCE,
    cost="none: the arm at a lower rate is run for the gate progress",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Warn when the loss at the peak is certainly above that of the best arm of a lower rate.

    Losses that are not finite, and steps with other rows, never enter. Not measured without such
    an arm, with fewer than four blocks of eight steps, or for an objective whose loss is no
    measure of quality. Equal losses pass.
    """
    if reason := no_measure(view):
        return not_measured(reason, LIMIT)
    other = best_reference(view, gates, arm).arm
    if other is None:
        return not_measured("no stable arm of a lower learning rate", LIMIT)
    found = step_interval(
        view.plan, other.steps, arm.steps, at_step=view.plan.stop_step,
        first_step=view.plan.start_step + 1, error_rate=ERROR_RATE, floor=UNKNOWN,
    )  # fmt: skip
    if found is None:
        return not_measured("too few paired steps at the peak", LIMIT)
    share = found.value / found.reference_loss if found.reference_loss else 0.0
    sentence = (
        f"training loss {num(found.value)} ± {num(found.half_width)} ({num(100 * share)} %) "
        f"against {other.job.title} on the same batches (99 % interval, "
        f"{found.num_blocks} blocks of {BLOCK_STEPS} steps)"
    )
    bad = found.value - found.half_width > MIN_GAP_FRAC * found.reference_loss
    return CheckResult(
        measured=True,
        findings=(_finding(sentence, found, other.job.title),) if bad else (),
        sentence=sentence,
        limit=LIMIT,
        numbers=_numbers(found),
    )


def _numbers(found: StepInterval) -> dict[str, float]:
    return {
        "difference": found.value,
        "half_width": found.half_width,
        "reference_loss": found.reference_loss,
        "num_blocks": found.num_blocks,
    }


def _finding(sentence: str, found: StepInterval, title: str) -> Finding:
    return Finding(
        check=NAME,
        severity=WARN,
        category="hyperparameter",
        sentence=f"{sentence}: it trains worse than at the lower rate",
        numbers=_numbers(found),
        limit=LIMIT,
        limit_source=SOURCE,
        obj=title,
        todo="compare the two after the cool-down (gate progress) before the rate is changed",
    )
