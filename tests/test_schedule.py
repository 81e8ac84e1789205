"""Every step of whole runs against the real schedulers of transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import optimization

from pilot.schedule import Schedule

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
