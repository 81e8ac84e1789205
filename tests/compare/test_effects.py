"""The word, the number and the sentence of every kind of arm."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pilot.arms.settings import Arms
from pilot.compare.effects import Effect, effect
from pilot.compare.noise import UNKNOWN, NoiseFloor
from pilot.compare.paired import paired_difference
from pilot.records import Outcome, ValidationRecord
from pilot.view import PilotView
from tests.factories import LOWER, build_view, make_step, with_arm, with_baseline, without_arm

SETTINGS = Arms()  # 5 %, smallest effect 0.5 %
NUM, COUNT, LEVEL = 64, 100, 2.0
NO_NOISE = NoiseFloor(
    sd_validation=0.0, sd_steps=0.0, num_runs=3, source="replicas", seed_matters=False
)
VIEW = build_view()
LONG = build_view(config={"pilot__min_peak_steps": 128})


def noise(sd: float, num_runs: int = 3) -> NoiseFloor:
    return NoiseFloor(
        sd_validation=sd, sd_steps=sd, num_runs=num_runs, source="replicas", seed_matters=True
    )


def validation(losses: list[float], at: str = "cooldown_end", step: int = 56) -> ValidationRecord:
    """Examples of 100 tokens each, with these losses per token."""
    return ValidationRecord(
        at=at, step=step, name="held_out", primary=True, loss=float(np.mean(losses)),
        loss_sums=tuple(COUNT * loss for loss in losses), token_counts=(COUNT,) * len(losses),
        attempt=1,
    )  # fmt: skip


def pilot(shift: float, spread: float = 0.0, num: int = NUM, **job: Any) -> PilotView:
    """A baseline of loss 2 and an arm ``shift`` above it, alternating by ``spread``."""
    base = [LEVEL + 0.1 * math.sin(k) for k in range(num)]
    base = [loss + LEVEL - float(np.mean(base)) for loss in base]
    own = [loss + shift + (spread if k % 2 else -spread) for k, loss in enumerate(base)]
    view = with_baseline(VIEW, validations=(validation(base),))
    changed = dataclasses.replace(view.arms[LOWER].job, **job)
    return with_arm(view, LOWER, validations=(validation(own),), job=changed)


def judged(view: PilotView, floor: NoiseFloor = NO_NOISE, settings: Arms = SETTINGS) -> Effect:
    return effect(view, settings, view.arms[LOWER], floor)


def ended(status: str, **values: Any) -> PilotView:
    outcome = Outcome(status=status, last_step=values.pop("last_step", 30), **values)
    return with_arm(VIEW, LOWER, outcome=outcome)


@pytest.mark.parametrize(("shift", "word"), [(0.1, "worse"), (-0.1, "better")])
def test_a_planted_effect_has_its_word_and_its_interval(shift: float, word: str) -> None:
    found = judged(pilot(shift, 0.08))
    # SE = 0.08 / sqrt(63), t(63 free, 5 %) = 1.99834
    assert found.word == word
    assert found.value == pytest.approx(shift)
    assert found.half_width == pytest.approx(1.99834 * 0.08 / math.sqrt(63), rel=1e-4)
    assert (found.basis, found.step, found.num) == ("validation", 56, 64)
    assert found.reference_loss == pytest.approx(LEVEL)


def test_the_sentence_carries_everything() -> None:
    assert judged(pilot(0.1, 0.08)).sentence == (
        "loss +0.1 (+5 %) ± 0.02 (95 % interval, n 64 examples) after the cool-down"
    )
    assert judged(pilot(-0.1, 0.08), noise(0.002)).sentence == (
        "loss -0.1 (-5 %) ± 0.021 (95 % interval, n 64 examples) after the cool-down; "
        "noise from 3 runs included"
    )


def test_run_to_run_noise_of_three_runs_has_two_degrees_of_freedom() -> None:
    found = judged(pilot(0.1), noise(0.01))
    assert found.half_width == pytest.approx(4.302653 * math.sqrt(2) * 0.01, rel=1e-5)
    assert found.word == "worse"
    assert judged(pilot(0.06), noise(0.01)).word == "no difference"  # 0.0608
    assert judged(pilot(0.06), noise(0.01, num_runs=6)).word == "worse"  # 0.0364


def test_welch_satterthwaite_by_hand() -> None:
    # a = 0.02^2 from 63, b = 2 * 0.01^2 from 2 degrees: (a + b)^2 / (a^2/63 + b^2/2) = 16.0135
    found = judged(pilot(0.1, 0.02 * math.sqrt(63)), noise(0.01))
    free = (6e-4) ** 2 / (4e-4**2 / 63 + 2e-4**2 / 2)
    assert free == pytest.approx(15.975, abs=0.05)
    assert found.half_width == pytest.approx(2.12 * math.sqrt(6e-4), rel=1e-3)


def test_no_difference_says_why() -> None:
    for shift, spread, why in (
        (0.0, 0.0, "the whole interval is within 0.01, the smallest effect anyone would act on"),
        (0.004, 0.02, "the whole interval is within 0.01, the smallest effect"),
        (0.02, 0.2, "not above its interval; up to 0.07035 is not excluded"),
        (0.009, 0.02, "below 0.01, the smallest effect anyone would act on"),
    ):
        found = judged(pilot(shift, spread))
        assert found.word == "no difference"
        assert why in found.sentence and "n 64 examples" in found.sentence
        assert found.half_width is not None and "±" in found.sentence


def test_exactly_at_its_limits() -> None:
    settings = Arms(min_effect_frac=0.0625)
    base = validation([2.0] * NUM)
    view = with_baseline(VIEW, validations=(base,))
    for shift, word in ((0.125, "worse"), (0.1249, "no difference"), (-0.125, "better")):
        arm = with_arm(view, LOWER, validations=(validation([2.0 + shift] * NUM),))
        found = judged(arm, settings=settings)
        assert (found.word, found.half_width) == (word, 0.0)
    # |d| must be above its interval, not equal to it.
    half = judged(pilot(0.1), noise(0.01)).half_width
    assert half is not None
    assert judged(pilot(half * (1 - 1e-9)), noise(0.01)).word == "no difference"
    assert judged(pilot(half * (1 + 1e-9)), noise(0.01)).word == "worse"


def test_without_a_floor_the_noise_is_unknown() -> None:
    assert judged(pilot(0.1, 0.08), UNKNOWN).word == "larger loss, noise unknown"
    found = judged(pilot(-0.1, 0.08), UNKNOWN)
    assert found.word == "smaller loss, noise unknown"
    assert found.sentence.endswith("; the interval is without run-to-run noise")
    steps_only = NoiseFloor(sd_steps=0.1, num_runs=3, source="stored", seed_matters=True)
    assert judged(pilot(0.1, 0.08), steps_only).word == "larger loss, noise unknown"


@pytest.mark.parametrize(("shift", "spread"), [(0.004, 0.02), (0.009, 0.02), (0.02, 0.2)])
def test_no_difference_needs_no_floor(shift: float, spread: float) -> None:
    assert judged(pilot(shift, spread), UNKNOWN).word == "no difference"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_validation_is_diverged_or_not_compared(bad: float) -> None:
    spoilt = (validation([bad] + [2.0] * 63),)
    found = judged(with_arm(pilot(0.0), LOWER, validations=spoilt))
    assert (found.word, found.value, found.step) == ("diverged", None, 56)
    assert found.sentence == "the validation after the cool-down is not finite"
    found = judged(with_baseline(pilot(0.0), validations=spoilt))
    assert found.word == "not compared"
    assert found.sentence == "the baseline's validation after the cool-down is not finite"


def test_a_stopped_arm_diverged() -> None:
    found = judged(ended(Outcome.STOPPED, step=29, message="loss is NaN at step 29"))
    assert found == Effect(word="diverged", step=29, sentence="loss is NaN at step 29")
    assert judged(ended(Outcome.STOPPED)).sentence == "not finite at step 30"


def test_an_identical_arm_is_no_difference() -> None:
    for floor in (UNKNOWN, NO_NOISE):
        found = judged(ended(Outcome.IDENTICAL, message="never clipped: identical"), floor)
        assert (found.word, found.basis) == ("no difference", "identical")
        assert (found.value, found.half_width) == (0.0, 0.0)
        assert found.sentence == "never clipped: identical"
        assert found.reference_loss == pytest.approx(2.0)
    bare = without_arm(ended(Outcome.IDENTICAL), "baseline")
    assert (judged(bare).reference_loss, judged(bare).sentence) == (
        None,
        "identical to the baseline",
    )


def test_arms_without_a_result_are_not_compared_and_say_why() -> None:
    failed = ended(
        Outcome.EXCEPTION, step=7, error_type="RuntimeError", message="bad\n  row " + "x" * 300
    )
    text = judged(failed).sentence
    assert text.startswith("RuntimeError at step 7: bad row xxx") and len(text) == 200
    for view, sentence in (
        (ended(Outcome.EXCEPTION), "an exception"),
        (ended(Outcome.OUT_OF_MEMORY, step=3), "out of memory at step 3"),
        (with_arm(VIEW, LOWER, outcome=None), "lost"),
        (with_arm(VIEW, LOWER, outcome=None, num_attempts=0), "not run"),
        (
            with_arm(
                VIEW, LOWER, outcome=None,
                absence={"status": "not run", "reason": "arms.budget_steps = 300"},
            ),
            "not run: arms.budget_steps = 300",
        ),
    ):  # fmt: skip
        assert judged(view) == Effect(word="not compared", sentence=sentence)


def test_missing_validations_and_other_examples_are_not_compared() -> None:
    for view, sentence in (
        (with_arm(VIEW, LOWER, validations=()), "it has no validation after the cool-down"),
        (with_baseline(VIEW, validations=()), "the baseline has no validation after the cool-down"),
        (without_arm(VIEW, "baseline"), "the baseline has no validation after the cool-down"),
        (pilot(0.1, num=7), "7 examples: fewer than 8 decide nothing"),
    ):
        found = judged(view)
        assert (found.word, found.sentence) == ("not compared", sentence)
    other = with_arm(pilot(0.1), LOWER, validations=(validation([2.0] * 63),))
    assert judged(other).word == "not compared"
    assert "had other examples" in judged(other).sentence
    record = dataclasses.replace(validation([2.0] * 8), token_counts=(0,) * 8, loss_sums=(0.0,) * 8)
    empty = with_baseline(with_arm(VIEW, LOWER, validations=(record,)), validations=(record,))
    assert judged(empty).sentence == "no validation example has supervised tokens"


@pytest.mark.parametrize("objective", ["rl", "preference"])
def test_a_loss_that_measures_no_quality_is_not_compared(objective: str) -> None:
    view = dataclasses.replace(pilot(0.5), survey={**VIEW.survey, "objective": objective})
    found = judged(view)
    assert found.word == "not compared"
    assert found.sentence == f"the loss of objective {objective} is no measure of quality"
    stopped = with_arm(view, LOWER, outcome=Outcome(status=Outcome.STOPPED, last_step=3))
    assert judged(stopped).word == "diverged"


def test_a_replica_is_the_noise_and_not_compared_with_it() -> None:
    found = judged(pilot(0.1, role="replica", variable="pilot.seed"), noise(0.1))
    assert (found.word, found.num) == ("not compared", 64)
    assert found.value == pytest.approx(0.1)
    assert found.sentence == "a replica: its difference of +0.1 is the noise"


def decided(
    change: np.ndarray, last_step: int, *, rate: float = 0.001, loss: float = 4.0, **how: Any
) -> PilotView:
    """A long pilot whose lower rate ended early; the peak begins at step 13."""
    steps = range(1, last_step + 1)
    waves = {s: loss + 0.2 * math.sin(3.0 * s) for s in range(1, 141)}
    base = [make_step(s, loss=waves[s]) for s in waves]
    arm = [
        make_step(s, loss=waves[s] + (float(change[s - 13]) if s > 12 else 0.0), learning_rate=rate)
        for s in steps
    ]
    values = {"value": "0.001", "baseline_value": "0.003", **how}
    job = dataclasses.replace(LONG.arms[LOWER].job, **values)
    outcome = Outcome(status=Outcome.DECIDED, last_step=last_step)
    view = with_baseline(LONG, steps=tuple(base))
    return with_arm(view, LOWER, steps=tuple(arm), outcome=outcome, validations=(), job=job)


def white(mean: float, sd: float) -> np.ndarray:
    return mean + sd * np.random.default_rng(1).standard_normal(128)


def test_a_decided_arm_is_judged_on_its_step_losses() -> None:
    found = judged(decided(white(0.08, 0.02), 44))
    assert (found.word, found.basis, found.step, found.num) == ("worse", "step loss", 44, 4)
    blocks = white(0.08, 0.02)[:32].reshape(4, 8).mean(axis=1)
    assert found.value == pytest.approx(blocks.mean())
    # t at a sixth of 5 %, with 3 degrees of freedom
    assert found.half_width == pytest.approx(6.23154 * blocks.std(ddof=1) / 2, rel=1e-5)
    assert found.reference_loss == pytest.approx(4.0, abs=0.05)
    assert "n 4 blocks of 8 steps, 6 looks) at the peak, ended early at step 44" in found.sentence


def test_the_noise_floor_may_be_known_only_afterwards() -> None:
    view = decided(white(0.08, 0.02), 44)
    assert judged(view, UNKNOWN).word == "larger loss, noise unknown"
    assert judged(view, UNKNOWN).sentence.endswith("the interval is without run-to-run noise")
    found = judged(view, noise(0.001))
    assert found.word == "worse" and found.sentence.endswith("noise from 3 runs included")


@pytest.mark.parametrize("sd", [0.007, 0.05])
def test_an_arm_that_would_have_run_on_with_this_noise_is_not_compared(sd: float) -> None:
    # At 0.007 the difference is above its interval, but not by the smallest effect.
    found = judged(decided(white(0.08, 0.02), 44), noise(sd))
    assert found == Effect(
        word="not compared", sentence="it ended early, before the noise was known"
    )
    same = decided(white(0.0, 0.003), 44, rate=0.003, variable="optim.weight_decay")
    assert judged(same, UNKNOWN).word == "no difference"
    assert judged(same, noise(sd)).word == "not compared"


def test_a_decided_arm_without_difference() -> None:
    other = {"rate": 0.003, "variable": "optim.weight_decay"}
    found = judged(decided(white(0.0, 0.003), 44, **other), UNKNOWN)
    assert (found.word, found.basis) == ("no difference", "step loss")
    assert "the whole interval is within" in found.sentence
    same = judged(decided(np.zeros(128), 44, **other), UNKNOWN)
    assert (same.word, same.value, same.half_width) == ("no difference", 0.0, 0.0)
    assert judged(decided(np.zeros(128), 44), UNKNOWN).word == "not compared"  # another rate


def test_steps_before_the_first_that_may_differ_are_no_evidence() -> None:
    change = np.concatenate([np.zeros(47), white(0.0, 0.01)[47:]])
    how = {"rate": 0.003, "variable": "optim.max_grad_norm", "first_difference_step": 60}
    early = judged(decided(change, 44, **how), UNKNOWN)
    assert early.sentence == "it ended at step 44, and its records do not show why"
    found = judged(decided(change, 91, **how), UNKNOWN)
    assert (found.word, found.num) == ("no difference", 4)


def test_a_lost_arm_diverged_without_an_interval() -> None:
    found = judged(decided(np.full(128, 4.0), 34), UNKNOWN)
    assert (found.word, found.basis, found.step) == ("diverged", "step loss", 34)
    assert found.half_width is None and found.value == pytest.approx(4.0, abs=0.2)
    assert found.sentence == (
        "its training loss stayed above 1.5 x its first value and the baseline's for 16 steps; "
        "ended at step 34"
    )


def test_decided_records_that_show_nothing_are_not_compared() -> None:
    view = decided(white(0.08, 0.02), 44)
    bare = with_arm(view, LOWER, steps=view.arms[LOWER].steps[:20])
    for broken in (bare, without_arm(view, "baseline")):
        found = judged(broken)
        assert found.word == "not compared"
        assert found.sentence == "it ended at step 44, and its records do not show why"


@hypothesis_settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.floats(-1, 1),
    st.floats(0, 0.5),
    st.floats(0, 0.2),
    st.sampled_from([UNKNOWN, NO_NOISE, None]),
)
def test_properties(shift: float, spread: float, sd: float, given_floor: NoiseFloor | None) -> None:
    floor = given_floor or noise(sd)
    found, mirror = judged(pilot(shift, spread), floor), judged(pilot(-shift, spread), floor)
    change = paired_difference(
        *(pilot(shift, spread).arms[n].validations[0] for n in ("baseline", LOWER))
    )
    assert found.value == change.value
    assert found.half_width is not None and found.reference_loss is not None
    assert found.half_width >= 1.99 * change.se
    clear = (
        abs(change.value) > found.half_width and abs(change.value) >= 0.005 * found.reference_loss
    )
    assert (found.word != "no difference") is clear
    if clear:
        assert found.word.split(",")[0] in (
            ("worse", "larger loss") if shift > 0 else ("better", "smaller loss")
        )
    opposite = {"worse": "better", "larger loss, noise unknown": "smaller loss, noise unknown"}
    if abs(abs(shift) - 0.01) > 1e-9 and shift > 0:
        assert mirror.word == opposite.get(found.word, found.word)
    assert "\n" not in found.sentence and not math.isnan(found.half_width)


def whole_run(baseline_left: float, own_left: float) -> PilotView:
    """No cool-down: the last steps have these shares of the peak rate."""
    view = pilot(0.3)
    plan = dataclasses.replace(view.plan, cooldown_steps=0)
    view = dataclasses.replace(view, plan=plan)
    parts = (("baseline", baseline_left), (LOWER, own_left))
    for name, left in parts:
        steps = (make_step(1, learning_rate=1.0), make_step(2, learning_rate=left))
        view = with_arm(view, name, steps=steps)
    return view


def test_a_whole_run_is_not_compared_with_one_whose_schedule_goes_on() -> None:
    found = judged(whole_run(0.0, 0.6))
    assert found.word == "not compared"
    assert "60 % of its peak rate" in found.sentence


@pytest.mark.parametrize(("baseline_left", "own_left"), [(0.0, 0.0), (1.0, 1.0), (0.6, 0.0)])
def test_whole_runs_that_end_alike_are_compared(baseline_left: float, own_left: float) -> None:
    assert judged(whole_run(baseline_left, own_left)).word == "worse"
