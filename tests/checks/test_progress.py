"""Every row of the decision table in ``pilot/checks/progress.py``."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from pilot.checks.progress import check
from pilot.checks.registry import CheckResult
from pilot.records import Outcome, ValidationRecord
from pilot.view import PilotView
from tests.factories import (
    LOWER,
    build_view,
    make_gates,
    make_validation,
    with_arm,
    with_baseline,
    without_arm,
)


def run(view: PilotView, **gate: Any) -> CheckResult:
    assert view.baseline is not None
    return check(view, make_gates(progress=gate), view.baseline)


def severity(result: CheckResult) -> str:
    assert len(result.findings) <= 1
    return result.findings[0].severity if result.findings else "pass"


def finals(own: float, reference: float, before: float = 3.0) -> PilotView:
    return build_view(
        baseline={"final": own, "before": before}, lower={"final": reference, "before": before}
    )


def exact(own: tuple[float, ...], reference: tuple[float, ...], before: float = 10.0) -> PilotView:
    """Losses per example of 10 tokens each, five times: p, gap and errors are known exactly.

    Two losses x -+ s have the SE s / 3 over the ten examples.
    """
    own, reference = own * 5, reference * 5

    def validation(at: str, losses: tuple[float, ...]) -> ValidationRecord:
        sums = tuple(10.0 * loss for loss in losses)
        return ValidationRecord(
            at=at, step=0 if at == "before" else 56, name="v", primary=True, attempt=1,
            loss=sum(losses) / len(losses), loss_sums=sums, token_counts=(10,) * len(losses),
        )  # fmt: skip

    first = validation("before", (before,) * len(own))
    view = with_baseline(build_view(), validations=(first, validation("cooldown_end", own)))
    return with_arm(view, LOWER, validations=(first, validation("cooldown_end", reference)))


def test_both_gain_and_the_run_is_as_good_passes() -> None:
    result = run(finals(2.0, 2.1))
    assert severity(result) == "pass" and result.sentence.startswith(
        "gains 1.11 x what lr x1/3 gains, gap "
    )


def test_low_p_and_wide_gap_fail() -> None:
    result = run(finals(2.9, 2.0))
    assert severity(result) == "fail"
    assert result.findings[0].numbers["progress"] == pytest.approx(0.1, abs=0.02)
    assert result.findings[0].todo == "try optim.learning_rate=0.001"


def test_only_one_of_the_two_warns() -> None:
    low_p = run(finals(2.98, 2.9))  # p 0.2, gap 2.7 %
    assert severity(low_p) == "warn" and "gains 0.2 x" in low_p.sentence
    wide_gap = run(finals(1.0, 0.5))  # p 0.8, gap 17 %
    assert severity(wide_gap) == "warn" and "gains 0.8 x" in wide_gap.sentence


def test_the_limit_of_p_is_inclusive() -> None:
    # before 10, reference 4: p = (10 - own) / 6. Own 6 gives exactly 2/3, with a gap of 20 %.
    view = exact((6.0, 6.0), (4.0, 4.0))
    assert run(view).numbers["progress"] == pytest.approx(2 / 3)
    assert severity(run(view, min_progress=2 / 3)) == "warn"
    assert severity(run(view, min_progress=0.67)) == "fail"


def test_the_limit_of_the_gap_is_inclusive() -> None:
    view = exact((9.5, 9.5), (9.0, 9.0))  # p 0.5, gap 5 %
    assert severity(run(view, max_gap_frac=0.05)) == "warn"
    result = run(view, max_gap_frac=0.05)
    assert "gap 5 % of the loss before: +0.5 (SE 0, n 10)" in result.sentence
    assert result.limit == (
        "a gain of at least 0.6667 x the reference's, or a gap of at most 5 % of the loss before "
        "step 1; gain at least 0.5 % of it"
    )
    assert severity(run(view, max_gap_frac=0.0499)) == "fail"
    assert severity(run(view, max_gap_frac=0.05, min_progress=0.5)) == "pass"


def test_a_gap_within_its_noise_is_undetermined() -> None:
    # Own change -2.5 with SE 1, p 0.625; gap (4.5, -1.5): value 1.5 (15 %), SE 1.
    view = exact((10.5, 4.5), (6.0, 6.0))
    result = run(view)
    assert severity(result) == "undetermined" and "not above its noise" in result.sentence
    assert severity(run(view, num_se=1.4)) == "undetermined"  # 1.53 SE with ten examples
    assert severity(run(view, num_se=1.35)) == "fail"  # 1.46 SE


def test_neither_gains_is_undetermined() -> None:
    result = run(finals(3.0, 3.0))
    assert severity(result) == "undetermined"
    assert "finite but not learning is not GO" in result.sentence


def test_worse_than_before_and_reference_too_is_undetermined_here() -> None:
    assert severity(run(finals(3.5, 3.4))) == "undetermined"


def test_the_run_gains_and_the_reference_does_not_passes() -> None:
    result = run(finals(2.5, 3.0))
    assert severity(result) == "pass" and "does not gain, this run does" in result.sentence
    assert severity(run(finals(2.5, 3.5))) == "pass"


def test_the_run_does_not_gain_while_the_reference_does() -> None:
    narrow = run(finals(3.0, 2.9))  # gap 3 %
    assert severity(narrow) == "undetermined" and "does not gain while lr x1/3" in narrow.sentence
    assert severity(run(finals(3.0, 2.0))) == "fail"
    assert severity(run(finals(3.5, 2.0))) == "fail"


def test_a_gain_must_exceed_its_standard_errors() -> None:
    # Own change (+1, -5): value -2, SE 1; the reference is the same.
    view = exact((11.0, 5.0), (11.0, 5.0))
    assert severity(run(view, num_se=1.8)) == "undetermined"  # 2.04 SE: neither gains
    assert severity(run(view, num_se=1.75)) == "pass"  # 1.97 SE
    assert severity(run(view, num_se=2.0)) == "undetermined"


def test_a_certain_gain_of_next_to_nothing_is_undetermined() -> None:
    # 0.0029 of 5.08 nats, hardly any noise; the reference gains a third of it.
    view = exact((5.0771, 5.0771), (5.079, 5.079), before=5.08)
    result = run(view)
    assert severity(result) == "undetermined"
    assert "gains only 0.05709 % of the loss before: next to nothing" in result.sentence
    assert "proportional to the rate: the rate may be far too low" in result.sentence
    assert severity(run(view, min_gain_frac=0.0)) == "pass"


def test_the_smallest_gain_is_inclusive() -> None:
    view = exact((7.875, 7.875), (7.875, 7.875), before=8.0)  # 1.5625 %, exact in binary
    assert severity(run(view, min_gain_frac=0.015625)) == "pass"
    result = run(view, min_gain_frac=0.015626)
    assert severity(result) == "undetermined" and "gains only 1.562 %" in result.sentence


def test_next_to_nothing_without_a_gaining_reference_is_undetermined() -> None:
    flat = run(exact((9.99, 9.99), (10.0, 10.0)))
    assert severity(flat) == "undetermined"
    assert "gains only 0.1 %" in flat.sentence and "does not gain" in flat.sentence
    alone = run(without_arm(exact((9.99, 9.99), (9.0, 9.0)), LOWER))
    assert severity(alone) == "undetermined" and "next to nothing" in alone.sentence
    assert "no arm of a lower rate ran" in alone.sentence


def test_the_reference_gains_by_its_standard_errors_alone() -> None:
    # The reference gains 0.4 %; were it held to the floor, this run would simply pass.
    result = run(exact((9.9, 9.9), (9.96, 9.96)))
    assert severity(result) == "pass" and result.numbers["progress"] == pytest.approx(2.5)
    assert "gains 2.5 x what" in result.sentence


def test_little_gain_still_fails_against_a_reference_that_learns() -> None:
    assert severity(run(exact((9.99, 9.99), (5.0, 5.0)))) == "fail"


def test_a_gain_in_proportion_to_the_rate_is_said() -> None:
    linear = run(exact((7.4, 7.4), (9.0, 9.0)))  # p 2.6
    assert severity(linear) == "pass" and "the rate may be far too low" in linear.sentence
    bent = run(exact((7.6, 7.6), (9.0, 9.0)))  # p 2.4
    assert severity(bent) == "pass" and "too low" not in bent.sentence


def test_a_start_at_zero_has_no_floor() -> None:
    assert severity(run(exact((-0.1, -0.1), (-0.1, -0.1), before=0.0))) == "pass"


@pytest.mark.parametrize("objective", ["rl", "preference"])
def test_an_objective_whose_loss_measures_nothing_is_not_measured(objective: str) -> None:
    result = run(build_view(survey={"objective": objective}))
    assert not result.measured
    assert result.reason == f"the loss of objective {objective} is no measure of quality"
    assert run(build_view(survey={"objective": "regression"})).measured


def test_constant_losses_are_no_gain() -> None:
    assert severity(run(exact((10.0, 10.0), (10.0, 10.0)))) == "undetermined"


def test_no_arm_is_undetermined_either_way() -> None:
    gains = run(without_arm(build_view(), LOWER))
    assert severity(gains) == "undetermined"
    assert "no arm of a lower rate ran" in gains.sentence and "ruined run" in gains.sentence
    flat = run(without_arm(build_view(baseline={"final": 3.0}), LOWER))
    assert severity(flat) == "undetermined" and "fuse" in flat.sentence


def nan_steps(record: Any) -> Any:
    return dataclasses.replace(record, loss=math.nan)


@pytest.mark.parametrize(
    ("lower", "words"),
    [
        ({"outcome": None, "last_step": 20}, "lr x1/3 was lost: no outcome"),
        ({"edit": nan_steps}, "lr x1/3 is not finite"),
        ({"last_step": 20}, "lr x1/3 is not finite"),
        (
            {"outcome": Outcome(status="exception", last_step=20), "last_step": 20},
            "lr x1/3 did not complete (exception)",
        ),
        (
            {"outcome": Outcome(status="completed", last_step=20), "last_step": 20},
            "lr x1/3 has no final validation",
        ),
    ],
)
def test_an_unusable_arm_is_no_reference(lower: dict[str, Any], words: str) -> None:
    result = run(build_view(lower=lower))
    assert severity(result) == "undetermined" and words in result.sentence


def test_an_arm_that_was_not_run_is_said_as_such() -> None:
    view = with_arm(
        build_view(), LOWER, steps=(), cooldown=(), validations=(), outcome=None, num_attempts=0
    )
    assert "lr x1/3 was not run" in run(view).sentence


def test_an_arm_with_other_examples_is_undetermined() -> None:
    result = run(build_view(lower={"num_examples": 32}))
    assert severity(result) == "undetermined" and "other examples" in result.sentence


def test_the_run_without_validation_is_not_measured() -> None:
    for last_step in (0, 20):
        assert not run(build_view(baseline={"last_step": last_step})).measured
    assert not run(with_baseline(build_view(), validations=())).measured


def test_non_finite_validation_is_not_measured() -> None:
    assert not run(build_view(baseline={"final": math.nan})).measured
    assert not run(build_view(baseline={"before": math.inf})).measured


def test_too_few_and_changed_examples_are_undetermined() -> None:
    for num in (1, 7):
        few = run(build_view(baseline={"num_examples": num}, lower={"num_examples": num}))
        assert severity(few) == "undetermined" and "fewer than 8 decide nothing" in few.sentence
    eight = run(build_view(baseline={"num_examples": 8}, lower={"num_examples": 8}))
    assert severity(eight) == "pass"
    view = build_view()
    assert view.baseline is not None
    changed = make_validation("cooldown_end", 56, 2.0, num_examples=10)
    view = with_baseline(view, validations=(*view.baseline.validations, changed))
    assert severity(run(view)) == "undetermined"
