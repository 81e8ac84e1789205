"""Shifts of the level and slow climbs."""

from __future__ import annotations

import numpy as np
import pytest

from pilot.series import detect
from pilot.series.types import Event
from tests.series.make import healthy, main_event, of_kind, trace


def flat(records: int, *, noise: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 2.0 * (1.0 + noise * rng.standard_normal(records))


def test_a_shift_of_five_percent_is_a_warning_without_alarm() -> None:
    loss = healthy(900, noise=0.02)
    loss[600:] *= 1.05
    found = detect(trace(loss))
    (event,) = of_kind(found, "level_shift")
    assert event.severity == "warn"
    assert event.first_step == pytest.approx(601, abs=12)
    assert event.size_frac == pytest.approx(0.05, abs=0.015)
    assert found.alarm is False


def test_a_shift_of_fifteen_percent_never_recovers() -> None:
    loss = flat(600, noise=0.04)
    loss[300:] *= 1.15
    event = main_event(found := detect(trace(loss)))
    assert event.kind == "never_recovers"
    assert event.first_step == pytest.approx(301, abs=8)
    assert found.state == "diverged"


def test_no_shift_in_a_falling_loss_nor_in_a_step_down() -> None:
    loss = np.concatenate([flat(300, noise=0.03), 0.7 * flat(300, noise=0.03, seed=1)])
    assert detect(trace(loss)).events == ()
    assert of_kind(detect(trace(healthy(1500, noise=0.03))), "level_shift") == []


def test_a_creep_inside_an_epoch_is_no_divergence() -> None:
    epoch = np.arange(400) / 400.0
    base = np.concatenate([np.full(400, 1.1), 0.72 * (1 + 0.06 * epoch), 0.42 * (1 + 0.08 * epoch)])
    noise = np.random.default_rng(4).standard_normal(len(base))
    found = detect(trace(base * (1.0 + 0.05 * noise)))
    assert found.alarm is False
    assert of_kind(found, "slow_divergence") == []


def slow(records: int, rise: float, seed: int = 0) -> Event | None:
    loss = flat(records, noise=0.03, seed=seed)
    loss[records // 3 :] *= 1.0 + rise * np.linspace(0.0, 1.0, len(loss[records // 3 :]))
    events = of_kind(detect(trace(loss)), "slow_divergence")
    return events[0] if events else None


def test_slow_divergence_is_found_and_graded() -> None:
    small, large = slow(1500, 0.09), slow(2400, 0.5)
    assert small is not None and small.severity == "warn"
    assert large is not None and large.severity == "fail"
    assert 600 <= large.first_step <= 1400
    assert slow(1500, 0.0) is None


def test_a_climb_in_a_short_run_is_found_at_the_end() -> None:
    rng = np.random.default_rng(0)
    base = np.concatenate([np.linspace(1.5, 1.0, 15), np.linspace(1.0, 1.7, 45)])
    found = detect(trace(base * (1.0 + 0.03 * rng.standard_normal(60))))
    event = main_event(found)
    assert (event.kind, found.state) == ("slow_divergence", "diverged")
    assert 12 <= event.first_step <= 30


def test_a_shift_that_is_open_at_the_end_says_so() -> None:
    loss = flat(440, noise=0.02)
    loss[400:] *= 1.04
    (event,) = of_kind(detect(trace(loss)), "level_shift")
    assert event.is_open


def test_four_records_of_three_sigma_are_spikes_in_a_row() -> None:
    for seed in range(5):
        loss = flat(800, noise=0.05, seed=seed)
        loss[500:505] = 2.0 * 1.19
        (event,) = of_kind(detect(trace(loss)), "consecutive_spikes")
        assert event.first_step == pytest.approx(501, abs=2)
        assert event.recovered_step is not None


def test_bursts_in_a_run_of_frequent_mistakes_are_its_noise() -> None:
    alarms = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        loss = np.where(
            rng.random(400) < 0.12, 0.7, np.abs(0.02 + 0.005 * rng.standard_normal(400))
        )
        loss[:20] = 0.69
        alarms += detect(trace(loss)).alarm
    assert alarms <= 1


def test_a_faster_rise_needs_fewer_records() -> None:
    loss = flat(700, noise=0.02)
    loss[100:] *= 1.0 + 0.12 * np.linspace(0.0, 1.0, 600)
    (event,) = of_kind(detect(trace(loss[:640])), "slow_divergence")
    assert event.severity in ("warn", "fail")
    assert event.last_step < 24 * 32
