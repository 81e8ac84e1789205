"""The paired ratio estimator, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from pilot.compare import Difference, paired_difference
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
    change = paired_difference(record((1.0, 4.0), (10, 40)), record((2.0, 8.0), (10, 40)))
    assert (change.value, change.se) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-15))
    assert change.worse(2.0) and not change.better(2.0)


def test_constant_losses_are_neither_better_nor_worse() -> None:
    same = record((1.0, 4.0), (10, 40))
    change = paired_difference(same, same)
    assert (change.value, change.se) == (0.0, 0.0)
    assert not change.worse(2.0) and not change.better(2.0)


def test_sign_worse_is_positive() -> None:
    low, high = record((1.0, 2.0, 3.1), (5, 5, 5)), record((2.0, 3.0, 4.0), (5, 5, 5))
    assert paired_difference(low, high).worse(2.0)
    assert paired_difference(high, low).better(2.0)
    assert not paired_difference(high, low).worse(2.0)


@pytest.mark.parametrize(
    ("value", "worse", "better"),
    [(0.2, False, False), (0.2001, True, False), (-0.2, False, False), (-0.2001, False, True)],
)
def test_exactly_two_standard_errors_is_not_enough(value: float, worse: bool, better: bool) -> None:
    change = Difference(value=value, se=0.1, num_examples=9, num_tokens=9)
    assert (change.worse(2.0), change.better(2.0)) == (worse, better)


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
