"""Every step of whole runs against the real schedulers of transformers."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import optimization

from pilot.schedule import RateTable, Schedule, same_rate, table_schedule

RATE = 3e-4


def real_rates(scheduler_of: object, steps: int, **options: object) -> list[float]:
    """The rate of every step that a real LambdaLR gives to a real optimizer."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    scheduler = scheduler_of(optimizer, **options)  # type: ignore[operator]
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("steps", [45, 300, 1500])
@pytest.mark.parametrize("warmup", [0, 1, 30])
def test_equal_to_the_real_schedulers_at_every_step(steps: int, warmup: int) -> None:
    both = {"num_warmup_steps": warmup, "num_training_steps": steps}
    real = {
        "constant": real_rates(
            optimization.get_constant_schedule_with_warmup, steps, num_warmup_steps=warmup
        ),
        "linear": real_rates(optimization.get_linear_schedule_with_warmup, steps, **both),
        "cosine": real_rates(optimization.get_cosine_schedule_with_warmup, steps, **both),
    }
    for kind, expected in real.items():
        ours = Schedule(kind=kind, learning_rate=RATE, schedule_steps=steps, warmup_steps=warmup)
        assert [ours.learning_rate_at(s) for s in range(1, steps + 1)] == expected, kind


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_cosine_with_a_floor_equals_the_real_one(floor: float) -> None:
    expected = real_rates(
        optimization.get_cosine_with_min_lr_schedule_with_warmup,
        200,
        num_warmup_steps=20,
        num_training_steps=200,
        min_lr_rate=floor,
    )
    ours = Schedule(
        kind="cosine",
        learning_rate=RATE,
        schedule_steps=200,
        warmup_steps=20,
        min_learning_rate_frac=floor,
    )
    got = [ours.learning_rate_at(s) for s in range(1, 201)]
    assert got == expected


def test_wsd_equals_the_real_one_with_a_linear_decay() -> None:
    expected = real_rates(
        optimization.get_wsd_schedule,
        200,
        num_warmup_steps=20,
        num_decay_steps=40,
        num_training_steps=200,
        decay_type="linear",
        min_lr_ratio=0.1,
    )
    ours = Schedule(
        kind="wsd",
        learning_rate=RATE,
        schedule_steps=200,
        warmup_steps=20,
        min_learning_rate_frac=0.1,
        decay_frac=0.2,
    )
    got = [ours.learning_rate_at(s) for s in range(1, 201)]
    assert got == pytest.approx(expected, rel=1e-12, abs=1e-20)


def test_the_horizon_is_the_full_run_not_the_pilot() -> None:
    long = Schedule(kind="cosine", learning_rate=1.0, schedule_steps=1500, warmup_steps=30)
    assert long.learning_rate_at(158) > 0.98
    assert long.learning_rate_at(1) == 0.0
    assert long.learning_rate_at(31) == 1.0
    assert long.is_peak(31) and not long.is_peak(30) and not long.is_peak(1400)


def table(rates: list[float], peak: float = 1.0) -> Schedule:
    """The schedule of a table whose baseline has the learning rate ``peak``."""
    own = RateTable(rates=tuple(rates), base_rate=peak)
    return table_schedule(peak, len(rates) - 1, own)


def test_a_table_gives_its_own_rates_and_scales() -> None:
    rates = [0.1 * min(k, 5) / 5 * 0.99 ** max(0, k - 5) for k in range(1, 42)]
    own = table(rates, 0.03)
    assert [own.learning_rate_at(s) for s in range(1, 42)] == rates
    assert own.warmup_steps == 4 and own.factor_at(5) == 1.0 and own.peak_rate == 0.1
    assert own.is_peak(5) and own.is_peak(15) and not own.is_peak(4) and not own.is_peak(16)
    third = table_schedule(0.01, 40, RateTable(rates=tuple(rates), base_rate=0.03))
    assert third.learning_rate_at(5) == pytest.approx(0.1 / 3) and third.factor_at(5) == 1.0
    assert third.warmup_steps == 4 and third.peak == pytest.approx(0.1 / 3)


def test_a_table_does_not_guess() -> None:
    own = table([1.0, math.nan, 0.5])
    assert own.knows(1) and not own.knows(2) and not own.knows(4) and not own.knows(0)
    assert not own.is_peak(2)
    with pytest.raises(ValueError, match="rate of step 4 was not measured"):
        own.learning_rate_at(4)
    assert own.up_to(1).rates == (1.0,) and own.up_to(1).peak == 1.0


@pytest.mark.parametrize(
    ("rates", "warmup"),
    [
        ([1.0] * 5, 0),
        ([0.0, 0.5, 1.0, 1.0, 0.5], 2),
        ([0.1, 0.2, 0.3], 2),
        ([0.0, 0.0], 0),
        ([], 0),
    ],
)
def test_a_warm_up_ends_at_the_first_step_at_the_highest_rate(
    rates: list[float], warmup: int
) -> None:
    assert RateTable(rates=tuple(rates), base_rate=1.0).warmup_steps == warmup


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1.0, 1.0 + 5e-7, True), (1.0, 1.0 + 2e-6, False), (0.0, 1e-13, True), (0.0, 1e-11, False),
        (math.nan, math.nan, True), (math.nan, 1.0, False), (math.inf, math.inf, True),
        (math.inf, 1.0, False), (-1.0, 1.0, False),
    ],
)  # fmt: skip
def test_when_two_rates_are_one(one: float, other: float, same: bool) -> None:
    assert same_rate(one, other, 1.0) is same and same_rate(other, one, 1.0) is same
