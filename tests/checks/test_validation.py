from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from pilot.checks.registry import CheckResult
from pilot.checks.validation import check
from pilot.compare.paired import critical
from pilot.records import ValidationRecord
from pilot.view import PilotView
from tests.factories import build_view, make_gates, with_baseline


def record(
    at: str, sums: tuple[float, ...], counts: tuple[int, ...], name: str, primary: bool
) -> ValidationRecord:
    total = sum(counts)
    return ValidationRecord(
        at=at, step=0 if at == "before" else 56, name=name, primary=primary, attempt=1,
        loss=sum(sums) / total if total else math.nan, loss_sums=sums, token_counts=counts,
    )  # fmt: skip


def pair(
    before: tuple[float, ...], after: tuple[float, ...], *, name: str = "v", primary: bool = True,
    counts: tuple[int, ...] = (10, 10), counts_after: tuple[int, ...] | None = None,
    repeat: int = 5,
) -> tuple[ValidationRecord, ValidationRecord]:  # fmt: skip
    """The same few examples ``repeat`` times: the value stays, the SE is that of n examples."""
    later = counts_after or counts
    return (
        record("before", before * repeat, counts * repeat, name, primary),
        record("cooldown_end", after * repeat, later * repeat, name, primary),
    )


def rise(num_se: float, repeat: int = 5) -> tuple[float, float]:
    """Sums after a start at 0 that rise by exactly ``num_se``: (x - 1, x + 1) over 10 tokens each.

    Value x / 10; with n = 2 * repeat examples SE = 0.1 / sqrt(n - 1).
    """
    num = 2 * repeat
    x = critical(num_se, num) / math.sqrt(num - 1)
    return x - 1.0, x + 1.0


def judged(*records: ValidationRecord, objective: str = "lm", **gate: Any) -> CheckResult:
    view = with_baseline(build_view(survey={"objective": objective}), validations=records)
    assert view.baseline is not None
    return check(view, make_gates(validation=gate), view.baseline)


def run(view: PilotView, **gate: Any) -> CheckResult:
    assert view.baseline is not None
    return check(view, make_gates(validation=gate), view.baseline)


def severities(result: CheckResult) -> list[str]:
    return [f.severity for f in result.findings]


def test_better_passes_with_the_numbers() -> None:
    result = run(build_view())
    assert result.measured and result.findings == ()
    assert result.limit == "after the pilot at most 2 SE or 2 % above before step 1"
    assert result.sentence.startswith("held_out 3 before step 1, 2 after the cool-down: -1 (SE ")
    assert result.numbers["num_examples"] == 64


def test_worse_by_both_limits_fails() -> None:
    result = run(build_view(baseline={"final": 3.2, "other_final": 2.0}))
    assert severities(result) == ["fail"]
    assert result.findings[0].numbers["difference"] == pytest.approx(0.2, abs=0.02)


def test_both_limits_are_needed() -> None:
    # d = (x - s, x + s) over 10 tokens each, five times: value x / 10, SE s / 30.
    certain_and_large = pair((100.0, 100.0), (102.0, 102.2))  # +0.21 (2.1 %), SE 0.003
    assert severities(judged(*certain_and_large)) == ["fail"]
    certain_but_small = pair((100.0, 100.0), (101.8, 102.0))  # +0.19 (1.9 %)
    assert severities(judged(*certain_but_small)) == ["note"]
    large_but_uncertain = pair((100.0, 100.0), (90.0, 120.0))  # +0.5, SE 0.5
    assert severities(judged(*large_but_uncertain)) == []


def test_exactly_at_a_limit_passes() -> None:
    at_rise = pair((100.0, 100.0), (102.0, 102.0))  # +2 % with SE 0
    assert severities(judged(*at_rise, max_rise_frac=0.02)) == ["note"]
    assert severities(judged(*at_rise, max_rise_frac=0.0199)) == ["fail"]
    at_two_se = pair((0.0, 0.0), rise(2.0))
    assert severities(judged(*at_two_se, objective="regression", num_se=2.0001)) == []
    assert severities(judged(*at_two_se, objective="regression", num_se=1.9999)) == ["fail"]


def test_constant_losses_pass() -> None:
    assert severities(judged(*pair((100.0, 100.0), (100.0, 100.0)))) == []


def test_negative_losses_use_the_size_of_the_loss() -> None:
    records = pair((-100.0, -100.0), (-98.5, -98.4))  # +0.155: 1.5 % of 10
    assert severities(judged(*records, objective="regression")) == ["note"]


def test_tokens_weigh() -> None:
    # One example of 1 token is much better, one of 99 tokens slightly worse: worse in all.
    records = pair((10.0, 99.0), (9.0, 109.0), counts=(1, 99))
    assert judged(*records).numbers["difference"] == pytest.approx(0.09)


def test_another_set_only_warns() -> None:
    result = run(build_view(baseline={"other_final": 3.5}))
    assert severities(result) == ["warn"]
    assert result.findings[0].obj == "other" and result.sentence.startswith("held_out")


def test_holm_shares_the_level_among_other_sets() -> None:
    good = pair((100.0, 100.0), (90.0, 90.0), name="main")
    # 2.1 SE: enough for one set alone (2 SE), not for the best of three (2.43 SE).
    alone = pair((0.0, 0.0), rise(2.1), name="a", primary=False)
    assert severities(judged(*good, *alone)) == ["warn"]
    others = [pair((0.0, 0.0), (0.0, 0.0), name=n, primary=False) for n in ("b", "c")]
    flat = [r for records in others for r in records]
    assert severities(judged(*good, *alone, *flat)) == []
    strong = pair((0.0, 0.0), rise(4.6), name="a", primary=False)
    assert severities(judged(*good, *strong, *flat)) == ["warn"]
    # A strong one uses up its place: the second has one rival less.
    second = pair((0.0, 0.0), rise(2.35), name="b", primary=False)  # above 2.28, below 2.43
    third = pair((0.0, 0.0), (0.0, 0.0), name="c", primary=False)
    assert severities(judged(*good, *strong, *second, *third)) == ["warn", "warn"]


def test_holm_ranks_sets_of_different_sizes_by_significance() -> None:
    good = pair((100.0, 100.0), (90.0, 90.0), name="main")
    # The small set has more standard errors (2.6 against 2.4) but is less significant: 2.2 < 2.28.
    small = pair((0.0, 0.0), rise(2.2), name="small", primary=False)
    large = pair((0.0, 0.0), rise(2.4, repeat=500), name="large", primary=False, repeat=500)
    found = judged(*good, *small, *large).findings
    assert [(f.severity, f.obj) for f in found] == [("warn", "large"), ("warn", "small")]


def test_a_small_rise_of_another_set_does_not_warn() -> None:
    good = pair((100.0, 100.0), (90.0, 90.0), name="main")
    small = pair((100.0, 100.0), (101.0, 101.1), name="a", primary=False)
    assert severities(judged(*good, *small)) == []


def test_missing_validations_are_not_measured() -> None:
    before, after = pair((1.0, 1.0), (1.0, 1.0))
    for records in ((), (before,), (after,)):
        result = judged(*records)
        assert not result.measured and "after the cool-down" in result.reason
    only_other = pair((1.0, 1.0), (1.0, 1.0), primary=False)
    assert not judged(*only_other).measured


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_is_not_measured(bad: float) -> None:
    result = judged(*pair((1.0, 1.0), (1.0, bad)))
    assert not result.measured and "not finite" in result.reason


def test_non_finite_other_set_does_not_matter_here() -> None:
    good = pair((100.0, 100.0), (90.0, 90.0), name="main")
    bad = pair((1.0, 1.0), (1.0, math.nan), name="a", primary=False)
    assert severities(judged(*good, *bad)) == []


def test_too_few_and_other_examples_are_undetermined() -> None:
    for repeat, severity in ((1, "undetermined"), (7, "undetermined"), (8, "fail")):
        result = judged(*pair((1.0,), (2.0,), counts=(5,), repeat=repeat))
        assert severities(result) == [severity]
    few = judged(*pair((1.0,), (2.0,), counts=(5,), repeat=7)).findings[0]
    assert "+0.2 (SE 0, n 7)" in few.sentence and "at least 8 examples" in few.todo
    other = pair((1.0, 1.0), (2.0, 2.0), counts_after=(10, 11))
    result = judged(*other)
    assert severities(result) == ["undetermined"] and "not comparable" in result.sentence


def test_the_last_attempt_wins() -> None:
    before, after = pair((100.0, 100.0), (100.0, 100.0))
    worse = dataclasses.replace(after, loss_sums=(120.0, 121.0) * 5, loss=12.05)
    assert severities(judged(before, after, worse)) == ["fail"]
    assert severities(judged(before, worse, after)) == []


def test_the_plan_says_which_validation_is_final() -> None:
    run_end = build_view(
        config={"full_run__schedule": "linear", "full_run__schedule_steps": 40},
        baseline={"final": 3.4, "other_final": 2.0},
    )
    assert run_end.plan.final_validation == "run_end"
    result = run(run_end)
    assert severities(result) == ["fail"] and "at the end of the run" in result.sentence


def test_a_set_that_cannot_be_estimated_hides_no_other() -> None:
    good = pair((100.0, 100.0), (90.0, 90.0), name="main")
    strong = pair((0.0, 0.0), (2.0, 3.1), name="b", primary=False)
    for broken in (
        pair((1.0, 1.0), (1.0, math.nan), name="a", primary=False),
        pair((1.0, 1.0), (2.0, 2.0), name="a", primary=False, counts_after=(10, 11)),
    ):
        result = judged(*good, *broken, *strong)
        assert [(f.severity, f.obj) for f in result.findings] == [("warn", "b")]


def test_very_many_standard_errors_leave_no_level_to_share() -> None:
    good = pair((100.0, 100.0), (90.0, 90.0), name="main")
    other = pair((0.0, 0.0), (2.0, 2.0), name="a", primary=False)
    assert severities(judged(*good, *other, num_se=9.0)) == ["warn"]
    noisy = pair((0.0, 0.0), (2.0, 3.1), name="a", primary=False)
    assert severities(judged(*good, *noisy, num_se=9.0)) == []


@pytest.mark.parametrize("objective", ["rl", "preference"])
def test_an_objective_whose_loss_measures_nothing_is_not_measured(objective: str) -> None:
    result = run(build_view(survey={"objective": objective}, baseline={"final": 9.0}))
    assert not result.measured and result.findings == ()
    assert result.reason == f"the loss of objective {objective} is no measure of quality"
    regression = run(build_view(survey={"objective": "regression"}, baseline={"final": 9.0}))
    assert regression.measured and "fail" in severities(regression)


def test_a_negative_loss_of_a_language_model_fails() -> None:
    """Better and better, and impossible: the sign is wrong."""
    view = build_view()
    baseline = view.arms["baseline"]
    flipped = tuple(
        dataclasses.replace(v, loss=-v.loss, loss_sums=tuple(-x for x in v.loss_sums))
        for v in baseline.validations
    )
    arms = {**view.arms, "baseline": dataclasses.replace(baseline, validations=flipped)}
    lm = dataclasses.replace(view, arms=arms)
    found = check(lm, make_gates(), arms["baseline"]).findings[0]
    assert found.severity == "fail" and "negative" in found.sentence
    other = dataclasses.replace(lm, survey={**view.survey, "objective": "regression"})
    sentences = [f.sentence for f in check(other, make_gates(), arms["baseline"]).findings]
    assert not any("negative" in sentence for sentence in sentences)
