"""The paired ratio estimator, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from pilot.compare.paired import (
    MIN_EXAMPLES,
    Difference,
    critical,
    half_width,
    mean_loss,
    paired_difference,
    t_quantile,
    word_for,
)
from pilot.records import ValidationRecord


def record(sums: tuple[float, ...], counts: tuple[int, ...], name: str = "v") -> ValidationRecord:
    total = sum(counts)
    return ValidationRecord(
        at="before", step=0, name=name, primary=True, attempt=1,
        loss=sum(sums) / total if total else math.nan, loss_sums=sums, token_counts=counts,
    )  # fmt: skip


def test_value_is_weighted_by_tokens_and_se_is_that_of_the_ratio_estimator() -> None:
    # d = (1, 9), n = (1, 3): D = 10/4 = 2.5, e = (-1.5, 1.5), SE = sqrt(2/1 * 4.5) / 4 = 0.75.
    change = paired_difference(record((2.0, 6.0), (1, 3)), record((3.0, 15.0), (1, 3)))
    assert change == Difference(value=2.5, se=0.75, num_examples=2, num_tokens=4)


def test_three_examples_use_n_over_n_minus_one() -> None:
    # d = (1, 2, 6), n = (1, 2, 3): D = 1.5, e = (-0.5, -1, 1.5), SE = sqrt(3/2 * 3.5) / 6.
    change = paired_difference(
        record((0.0, 0.0, 0.0), (1, 2, 3)), record((1.0, 2.0, 6.0), (1, 2, 3))
    )
    assert change.value == pytest.approx(1.5)
    assert change.se == pytest.approx(math.sqrt(1.5 * 3.5) / 6)


def test_same_shift_for_all_tokens_has_no_error() -> None:
    counts = (10, 40) * 4
    change = paired_difference(record((1.0, 4.0) * 4, counts), record((2.0, 8.0) * 4, counts))
    assert (change.value, change.se) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-15))
    assert change.worse(2.0) and not change.better(2.0)


def test_constant_losses_are_neither_better_nor_worse() -> None:
    same = record((1.0, 4.0) * 4, (10, 40) * 4)
    change = paired_difference(same, same)
    assert (change.value, change.se) == (0.0, 0.0)
    assert not change.worse(2.0) and not change.better(2.0)


def test_sign_worse_is_positive() -> None:
    counts = (5, 5, 5) * 3
    low, high = record((1.0, 2.0, 3.1) * 3, counts), record((2.0, 3.0, 4.0) * 3, counts)
    assert paired_difference(low, high).worse(2.0)
    assert paired_difference(high, low).better(2.0)
    assert not paired_difference(high, low).worse(2.0)


@pytest.mark.parametrize(
    ("excess", "worse", "better"),
    [(1.0, False, False), (1.001, True, False), (-1.0, False, False), (-1.001, False, True)],
)
def test_exactly_the_critical_value_is_not_enough(excess: float, worse: bool, better: bool) -> None:
    value = excess * critical(2.0, 9) * 0.1
    change = Difference(value=value, se=0.1, num_examples=9, num_tokens=9)
    assert (change.worse(2.0), change.better(2.0)) == (worse, better)


@pytest.mark.parametrize(
    ("num_examples", "table"), [(8, 2.3646), (12, 2.2010), (31, 2.0423), (10**9, 1.9600)]
)
def test_few_examples_need_the_quantile_of_t(num_examples: int, table: float) -> None:
    assert critical(1.959964, num_examples) == pytest.approx(table, abs=0.009)


def test_two_standard_errors_of_few_examples_are_not_enough() -> None:
    for num_examples, worse in ((12, False), (1000, True)):
        change = Difference(value=0.21, se=0.1, num_examples=num_examples, num_tokens=9)
        assert change.worse(2.0) is worse


def test_too_few_examples_have_numbers_but_decide_nothing() -> None:
    assert MIN_EXAMPLES == 8
    for num, estimated in ((7, False), (8, True)):
        counts = (5,) * num + (0,) * 9  # examples without a supervised token do not count
        low = record((1.0,) * num + (0.0,) * 9, counts)
        high = record((2.0,) * num + (0.0,) * 9, counts)
        change = paired_difference(low, high)
        assert (change.value, change.se, change.num_examples) == (pytest.approx(0.2), 0.0, num)
        assert change.estimated is estimated and change.worse(2.0) is estimated
        assert paired_difference(high, low).better(2.0) is estimated


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_gives_no_estimate(bad: float) -> None:
    good, spoilt = record((1.0, 2.0), (3, 3)), record((1.0, bad), (3, 3))
    for pair in ((good, spoilt), (spoilt, good)):
        change = paired_difference(*pair)
        assert math.isnan(change.value) and math.isnan(change.se)
        assert not change.estimated and not change.worse(0.0) and not change.better(0.0)


def test_one_example_has_a_value_but_no_error() -> None:
    change = paired_difference(record((1.0,), (2,)), record((3.0,), (2,)))
    assert change.value == 1.0 and math.isnan(change.se) and change.num_examples == 1
    assert not change.estimated and not change.worse(2.0)


def test_examples_without_tokens_do_not_count() -> None:
    change = paired_difference(
        record((2.0, 6.0, 0.0), (1, 3, 0)), record((3.0, 15.0, 0.0), (1, 3, 0))
    )
    assert change == Difference(value=2.5, se=0.75, num_examples=2, num_tokens=4)


def test_no_token_at_all_gives_no_estimate() -> None:
    for counts in ((), (0, 0)):
        empty = record((0.0,) * len(counts), counts)
        change = paired_difference(empty, empty)
        assert math.isnan(change.value) and change.num_examples == 0


def test_other_examples_are_refused() -> None:
    with pytest.raises(ValueError, match=r"other examples: 2 examples, 6 tokens .* 2 examples, 7"):
        paired_difference(record((1.0, 2.0), (3, 3)), record((1.0, 2.0), (3, 4)))
    with pytest.raises(ValueError, match="two validation sets"):
        paired_difference(record((1.0,), (3,)), record((1.0,), (3,), name="w"))
    with pytest.raises(ValueError, match="differ in number"):
        paired_difference(record((1.0, 2.0), (3, 3)), record((1.0,), (3, 3)))


def test_a_difference_of_1e200_still_has_a_standard_error() -> None:
    """Its square overflows; a diverged fp64 run must not look undetermined."""
    before = record([2.0] * 12, [1] * 12)
    after = record([1e200 + k * 1e199 for k in range(12)], [1] * 12)
    found = paired_difference(before, after)
    assert math.isfinite(found.se) and 1e198 < found.se < 1e200
    assert found.worse(2.0)


def test_mean_loss_is_weighted_by_tokens() -> None:
    assert mean_loss(record((2.0, 9.0), (1, 3))) == 2.75
    assert mean_loss(record((2.0, math.nan), (1, 0))) == 2.0
    assert math.isnan(mean_loss(record((2.0, math.nan), (1, 1))))
    assert mean_loss(record((2.0, math.inf), (1, 1))) == math.inf
    for sums, counts in (((), ()), ((0.0,), (0,)), ((1.0,), (1, 1))):
        assert math.isnan(mean_loss(record(sums, counts)))


@pytest.mark.parametrize(
    ("error_rate", "free", "table"),
    [(0.05, 2, 4.3027), (0.05, 10, 2.2281), (0.01, 3, 5.8409), (0.05, math.inf, 1.9600)],
)
def test_t_quantiles_are_those_of_the_tables(error_rate: float, free: float, table: float) -> None:
    assert t_quantile(error_rate, free) == pytest.approx(table, abs=5e-5)


def test_half_widths() -> None:
    assert half_width(0.0, 7, 0.05) == 0.0
    assert half_width(0.0, 7, 0.05, noise_sd=0.0, num_runs=0) == 0.0
    assert half_width(0.1, 7, 0.05) == pytest.approx(0.23646, rel=1e-4)
    assert half_width(0.0, 7, 0.05, noise_sd=0.1, num_runs=3) == pytest.approx(0.60849, rel=1e-4)
    assert half_width(1e200, 7, 0.05) == pytest.approx(2.3646e200, rel=1e-4)
    assert half_width(math.inf, 7, 0.05) == math.inf
    assert math.isnan(half_width(math.nan, 7, 0.05))


def test_noise_never_narrows_an_interval_of_few_blocks() -> None:
    """More degrees of freedom would: 6.23 SE with 3 of them, 4.9 SE with 4.6."""
    alone = half_width(1.0, 3, 0.05 / 6)
    assert half_width(1.0, 3, 0.05 / 6, noise_sd=0.4, num_runs=9) == alone


@pytest.mark.parametrize(
    ("value", "half", "least", "known", "word"),
    [
        (0.3, 0.2, 0.1, True, "worse"),
        (-0.3, 0.2, 0.1, True, "better"),
        (0.3, 0.2, 0.1, False, "larger loss, noise unknown"),
        (-0.3, 0.2, 0.1, False, "smaller loss, noise unknown"),
        (0.2, 0.2, 0.1, True, "no difference"),
        (0.3, 0.2, 0.3, True, "worse"),
        (0.3, 0.2, 0.31, True, "no difference"),
        (0.3, 0.2, 0.31, False, "no difference"),
        (0.0, 0.0, 0.0, True, "no difference"),
        (0.3, math.inf, 0.1, True, "no difference"),
        (math.nan, 0.2, 0.1, True, "not compared"),
        (0.3, math.nan, 0.1, True, "not compared"),
    ],
)
def test_words(value: float, half: float, least: float, known: bool, word: str) -> None:
    assert word_for(value, half, least, noise_known=known) == word
