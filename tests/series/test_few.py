"""Series of few records, windows out of a run, and losses that do not change at all."""

from __future__ import annotations

import numpy as np
import pytest

from pilot.series import detect
from pilot.series.few import risen
from pilot.series.fewnorms import stands_out
from pilot.series.types import Series, Trace
from pilot.series.window import is_window
from tests.series.make import main_event, of_kind, trace


def window(values: list[float] | np.ndarray, first: int, every: int = 1) -> Trace:
    """A loss whose first record is step ``first``."""
    steps = first + every * np.arange(len(values), dtype=np.int64)
    train = {"loss": Series(steps=steps, values=np.asarray(values, dtype=np.float64))}
    return Trace(source="test", format="test", axis="steps", train=train)


def test_a_window_begins_more_than_16_intervals_after_step_0() -> None:
    assert not is_window(0, 1) and not is_window(16, 1) and is_window(17, 1)
    assert not is_window(1000, 100) and is_window(5000, 100)
    assert is_window(30, 0)


def test_a_rise_to_thrice_the_start_in_eight_records_is_damage() -> None:
    loss = [2.0, 1.8, 3.9, 7.7, 6.9, 6.1, 6.2, 5.9]
    event = main_event(found := detect(trace(loss, every=20)))
    assert (event.kind, event.severity, event.is_open) == ("early_damage", "fail", True)
    assert (event.first_step, event.last_step, found.state) == (60, 160, "diverged")
    event = main_event(detect(window(loss, 7000, 20)))
    assert (event.kind, event.first_step, event.confidence) == ("never_recovers", 7040, "low")


@pytest.mark.parametrize(
    "loss",
    [
        [2.0, 1.8, 4.1, 3.9, 3.3, 2.9, 2.2, 1.9],  # it comes back
        [1.0, 2.1, 2.2, 2.0, 2.3, 2.1, 2.2],  # one low record alone, twice as low
        [2.0, 1.8, 1.9, 6.0, 6.1, 6.2],  # three records only
        [2.0, 1.8, 2.9, 3.1, 3.0, 3.2, 3.1],  # 1.6 x
        [0.3, 0.2, 0.9, 0.4, 1.6, 0.7, 0.5, 1.2],  # noise
    ],
)
def test_what_is_no_such_rise(loss: list[float]) -> None:
    assert detect(trace(loss)).alarm is False


def test_few_noisy_records_rise_by_chance_in_less_than_one_of_a_thousand_runs() -> None:
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(2000):
        values = np.exp(0.4 * rng.standard_normal(int(rng.integers(5, 24))))
        hits += risen(list(enumerate(values.tolist())), window=False) is not None
    assert hits <= 2


def test_few_records_that_rise_are_too_short_to_call_healthy() -> None:
    rising = [1.0, 1.1, 1.0, 1.3, 1.5, 1.4, 1.7, 1.6, 1.8]
    assert detect(trace(rising)).state == "too_short"
    assert detect(trace(rising[::-1])).state == "healthy"


def test_a_window_has_no_damage_at_the_start_and_is_flat_without_alarm() -> None:
    rng = np.random.default_rng(3)
    low_then_noise = np.concatenate([[0.4, 0.7, 0.7, 0.4], 1.2 + 0.3 * rng.standard_normal(30)])
    assert of_kind(detect(window(low_then_noise, 12972)), "early_damage") == []
    flat = 0.8 * (1.0 + 0.02 * rng.standard_normal(95))
    found = detect(window(flat, 355))
    (event,) = found.events
    assert (event.kind, event.severity, found.state) == ("no_progress", "note", "healthy")
    assert "the log begins at step 355" in event.detail
    assert detect(window(flat, 1)).state == "no_progress"


def test_the_size_of_no_progress_is_positive_for_a_rise() -> None:
    rng = np.random.default_rng(4)
    loss = np.linspace(2.0, 2.04, 80) * (1.0 + 0.004 * rng.standard_normal(80))
    event = main_event(detect(trace(loss)))
    assert event.kind == "no_progress"
    assert event.size_frac == pytest.approx(0.015, abs=0.005)


def test_a_spike_before_the_last_record_is_back() -> None:
    loss = np.concatenate([1.0 + 0.01 * (np.arange(29) % 3), [6.0, 1.01]])
    (event,) = of_kind(detect(window(loss, 5000)), "single_spike")
    assert (event.first_step, event.recovered_step) == (5029, 5030)


def test_the_same_loss_to_the_last_digit_is_no_update() -> None:
    found = detect(trace([10.8259] * 8))
    assert (main_event(found).kind, found.state, found.alarm) == (
        "no_progress",
        "no_progress",
        False,
    )
    assert main_event(detect(window([10.8259] * 8, 400))).severity == "warn"
    assert detect(trace([10.8259] * 7)).events == ()
    assert detect(trace([0.05] * 12)).events == ()  # a rounded log
    assert detect(trace([10.8259, 10.8258] * 6)).events == ()
    fell = [4.1, 3.2, 2.9, 2.5, *[2.4137] * 9]
    (event,) = detect(trace(fell)).events
    assert (event.severity, event.first_step) == ("note", 5)


def test_few_grad_norms_that_stand_out_are_a_note() -> None:
    loss = [1.4, 1.3, 1.5, 1.2, 1.4, 1.3, 1.2, 1.3, 1.4]
    pop = [9.0, 8.0, 7.0, 60.0, 9.0, 8.0, 7.0, 8.0, 9000.0]
    found = detect(trace(loss, pop))
    (event,) = found.events
    assert (event.kind, event.severity, event.first_step) == ("grad_norm_alarm", "note", 9)
    assert found.state == "healthy"
    growing = [0.3, 0.3, 0.3, 1.2, 3.0, 7.0, 9.0, 12.0, 10.0]
    (event,) = detect(trace(loss, growing)).events
    assert (event.kind, event.severity, event.first_step) == ("grad_norm_trend", "note", 4)


def test_few_grad_norms_that_do_not() -> None:
    assert stands_out(list(enumerate([500.0, 300.0, 8.0, 7.0, 8.0, 9.0, 7.0, 8.0]))) is None
    assert stands_out(list(enumerate([9.0, 8.0, 7.0, 150.0, 9.0, 8.0]))) is None
    assert stands_out(list(enumerate([0.0] * 8 + [5.0]))) is None
    assert stands_out(list(enumerate([1.0] * 4 + [500.0]))) is None
    assert stands_out(list(enumerate([1.0] * 30 + [500.0]))) is None
