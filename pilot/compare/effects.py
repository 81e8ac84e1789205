"""What an arm's one change did, in a word, a number with its interval, and one line. Pure.

A completed arm is compared on the baseline's final validation examples (after the cool-down): the
difference d of the losses, paired by example, has an interval of
t * sqrt(SE_examples^2 + 2 s^2), s being the run-to-run noise. An arm that ended early is compared
on its step losses so far.

| arm                                  | word                                                      |
|--------------------------------------|-----------------------------------------------------------|
| provably the baseline                | no difference                                             |
| non-finite: stopped, or at the end   | diverged                                                  |
| ended early: its training loss far   | diverged                                                  |
| above its start and the baseline's   |                                                           |
| ended early, which it would not have | not compared                                              |
| with the noise that is known by now  |                                                           |
| exception, out of memory, lost       | not compared                                              |
| a replica, an rl or preference loss, | not compared                                              |
| another loss before the first step   |                                                           |
| |d| in its interval, or below the    | no difference: whatever the noise, which only widens it   |
| smallest effect anyone would act on  |                                                           |
| else, noise known                    | better, worse                                             |
| else, noise unknown                  | smaller loss, larger loss, noise unknown                  |

Measured, ``python -m tests.benchmarks.sequential``: without any effect and with a smallest effect
of 0, 3.7 to 5.6 % are called better or worse (rate 5 %, s from three runs, 0 to 30 x SE_examples).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pilot.arms.ending import failure_text, rate_left_frac
from pilot.arms.settings import Arms
from pilot.arms.specs import REPLICA
from pilot.checks.common import no_measure, num, place_text, plural
from pilot.compare.noise import UNKNOWN, NoiseFloor
from pilot.compare.paired import (
    DIVERGED,
    LARGER,
    MIN_EXAMPLES,
    NOT_COMPARED,
    SAME,
    Difference,
    half_width,
    mean_loss,
    paired_difference,
    word_for,
)
from pilot.compare.paired_steps import BLOCK_STEPS
from pilot.compare.sequential import LOST_RATIO, LOST_STEPS, Decision, decide_arm
from pilot.compare.start import other_start
from pilot.records import Outcome, ValidationRecord
from pilot.view import ArmView, PilotView

VALIDATION, STEP_LOSS, IDENTICAL = "validation", "step loss", "identical"
_MAX_REASON_CHARS = 200
# One step of a linear decay of 10 steps: schedules that differ by less end alike.
_MAX_RATE_LEFT_FRAC = 0.1


@dataclass(frozen=True, kw_only=True)
class Effect:
    """An arm against the baseline; losses in the recipe's unit (``lm``: nats per token).

    ``value`` (positive: the arm's loss is larger) plus and minus ``half_width`` is the interval at
    1 - ``arms.error_rate``; ``reference_loss`` is the baseline's, of which the difference is a
    share. ``basis`` is ``validation``, ``step loss``, ``identical`` or empty, ``num`` counts what
    was averaged there: examples, blocks of steps. None: there is no such number. ``sentence`` is
    one line to stand after the word, which it does not repeat.
    """

    word: str
    value: float | None = None
    half_width: float | None = None
    reference_loss: float | None = None
    basis: str = ""
    step: int | None = None
    num: int = 0
    sentence: str


def effect(view: PilotView, settings: Arms, arm: ArmView, floor: NoiseFloor) -> Effect:
    """Compare ``arm`` with the baseline; the module's table is the rule.

    NaN or inf in the arm's final validation: diverged; in the baseline's, other examples, or fewer
    than ``MIN_EXAMPLES``: not compared. Constant losses have an interval of 0.
    """
    status = arm.outcome.status if arm.outcome else ""
    if arm.outcome is None or status in (Outcome.EXCEPTION, Outcome.OUT_OF_MEMORY):
        return _not_compared(failure_text(arm))
    if status == Outcome.IDENTICAL:
        return _identical(view, arm.outcome)
    if status == Outcome.STOPPED:
        why = _line(arm.outcome.message) or f"not finite at step {arm.outcome.last_step}"
        return _diverged(why, arm.outcome.step or arm.outcome.last_step)
    if reason := no_measure(view) or other_start(view, arm):
        return _not_compared(reason)
    if status == Outcome.DECIDED:
        return _decided(view, settings, arm, floor)
    return _completed(view, settings, arm, floor)


def _completed(view: PilotView, settings: Arms, arm: ArmView, floor: NoiseFloor) -> Effect:
    baseline = view.baseline.validation(view.plan.final_validation) if view.baseline else None
    final = arm.validation(view.plan.final_validation)
    if baseline is None or final is None:
        whose = "the baseline" if baseline is None else "it"
        return _not_compared(f"{whose} has no validation {place_text(view.plan.final_validation)}")
    if reason := _still_hot(view, arm):
        return _not_compared(reason)
    try:
        change = paired_difference(baseline, final)
    except ValueError as error:
        return _not_compared(str(error))
    if not change.num_examples:
        return _not_compared("no validation example has supervised tokens")
    if not math.isfinite(change.value):
        return _not_finite(baseline, final)
    if arm.job.role == REPLICA:
        return _replica(change, final)
    if not change.estimated:
        examples = plural(change.num_examples, "example")
        return _not_compared(f"{examples}: fewer than {MIN_EXAMPLES} decide nothing")
    half = half_width(
        change.se, change.num_examples - 1, settings.error_rate,
        noise_sd=floor.sd_validation or 0.0, num_runs=floor.num_runs,
    )  # fmt: skip
    reference = abs(mean_loss(baseline))
    known = floor.sd_validation is not None
    word = word_for(change.value, half, settings.min_effect_frac * reference, noise_known=known)
    numbers = Effect(
        word=word, value=change.value, half_width=half, reference_loss=reference, basis=VALIDATION,
        step=final.step, num=change.num_examples, sentence="",
    )  # fmt: skip
    counted = plural(change.num_examples, "example")
    return _with_sentence(numbers, settings, counted, place_text(final.at), _noise(floor, known))


def _still_hot(view: PilotView, arm: ArmView) -> str:
    """Why a whole run without cool-down is no fair comparison: the arm's schedule is longer.

    The baseline's rate has come down at its end, the arm's has not: at the peak a run looks worse
    than it is. Empty when a cool-down branch follows, or a rate is missing.
    """
    if view.plan.cooldown_steps or view.baseline is None or not view.baseline.steps:
        return ""
    left, own = rate_left_frac(view.baseline), rate_left_frac(arm)
    if own <= left + _MAX_RATE_LEFT_FRAC:
        return ""
    return (
        f"its schedule goes on where the baseline's ends: {num(100 * own)} % of its peak rate at "
        f"the last step, the baseline has {num(100 * left)} %"
    )


def _decided(view: PilotView, settings: Arms, arm: ArmView, floor: NoiseFloor) -> Effect:
    """An arm that ended early, decided again on its records, with the noise that is known by now.

    A replica may have completed, after a resume, when the arm had ended already. Where the arm
    would then have run on, its word would be one that an undisturbed pilot does not say.
    """
    step = arm.outcome.last_step if arm.outcome else 0
    found = decide_arm(view, settings, arm, at_step=step, floor=floor)
    if found is None:
        if decide_arm(view, settings, arm, at_step=step, floor=UNKNOWN) is not None:
            return _not_compared("it ended early, before the noise was known")
        return _not_compared(f"it ended at step {step}, and its records do not show why")
    numbers = Effect(
        word=found.word, value=found.value, half_width=found.half_width,
        reference_loss=found.reference_loss, basis=STEP_LOSS, step=step, num=found.num_blocks,
        sentence=_lost(found),
    )  # fmt: skip
    if found.half_width is None:
        return numbers
    counted = f"{found.num_blocks} blocks of {BLOCK_STEPS} steps, {found.num_looks} looks"
    noise = _noise(floor, found.word != LARGER)
    return _with_sentence(
        numbers, settings, counted, f"at the peak, ended early at step {step}", noise
    )


def _with_sentence(found: Effect, settings: Arms, counted: str, place: str, noise: str) -> Effect:
    """``found`` with its line: the word, the share, the interval, the count and why."""
    value, half = found.value or 0.0, found.half_width or 0.0
    reference = found.reference_loss or 0.0
    least = settings.min_effect_frac * reference
    share = f" ({100 * value / reference:+.2g} %)" if reference else ""
    text = (
        f"loss {value:+.4g}{share} ± {half:.2g} "
        f"({100 * (1 - settings.error_rate):g} % interval, n {counted}) {place}"
    )
    if found.word == SAME:
        text += f"; {_why_same(abs(value), half, least)}"
    elif noise:
        text += f"; {noise}"
    return replace(found, sentence=text)


def _why_same(size: float, half: float, least: float) -> str:
    """Which rule says "no difference", and how large a difference is not excluded."""
    smallest = f"{num(least)}, the smallest effect anyone would act on"
    if size + half <= least:
        return f"the whole interval is within {smallest}"
    if size <= half:
        return f"not above its interval; up to {num(size + half)} is not excluded"
    return f"below {smallest}"


def _noise(floor: NoiseFloor, known: bool) -> str:
    if known:
        return "" if floor.seed_matters is False else f"noise from {floor.num_runs} runs included"
    return "the interval is without run-to-run noise"


def _lost(found: Decision) -> str:
    return (
        f"its training loss stayed above {num(LOST_RATIO)} x its first value and the baseline's "
        f"for {LOST_STEPS} steps; ended at step {found.step}"
    )


def _identical(view: PilotView, outcome: Outcome) -> Effect:
    final = view.baseline.validation(view.plan.final_validation) if view.baseline else None
    why = _line(outcome.message) or "identical to the baseline"
    reference = abs(mean_loss(final)) if final and math.isfinite(mean_loss(final)) else None
    return Effect(
        word=SAME, value=0.0, half_width=0.0, reference_loss=reference, basis=IDENTICAL,
        step=outcome.last_step, sentence=why,
    )  # fmt: skip


def _replica(change: Difference, final: ValidationRecord) -> Effect:
    return Effect(
        word=NOT_COMPARED, value=change.value, basis=VALIDATION, step=final.step,
        num=change.num_examples,
        sentence=f"a replica: its difference of {change.value:+.4g} is the noise",
    )  # fmt: skip


def _not_finite(baseline: ValidationRecord, final: ValidationRecord) -> Effect:
    place = place_text(final.at)
    if not math.isfinite(mean_loss(final)):
        return _diverged(f"the validation {place} is not finite", final.step)
    return _not_compared(f"the baseline's validation {place} is not finite")


def _diverged(why: str, step: int) -> Effect:
    return Effect(word=DIVERGED, step=step, sentence=why)


def _not_compared(reason: str) -> Effect:
    return Effect(word=NOT_COMPARED, sentence=_line(reason))


def _line(text: str) -> str:
    """``text`` on one line, cut to a length that a table bears."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _MAX_REASON_CHARS else f"{flat[: _MAX_REASON_CHARS - 1]}…"
