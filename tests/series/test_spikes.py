"""Spikes of the loss: single, in a row, never back; and what is no spike."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pilot.series import detect
from pilot.series.chance import in_a_row, tail
from pilot.series.monitor import Monitor
from pilot.series.point import Point
from tests.series.make import feed, healthy, main_event, of_kind, trace


def test_a_healthy_run_has_no_warning() -> None:
    for seed in range(8):
        found = detect(trace(healthy(600, noise=0.05, seed=seed)))
        assert found.state == "healthy"
        assert all(event.severity == "note" for event in found.events)


def test_one_high_record_is_a_note_at_its_step() -> None:
    loss = healthy()
    loss[200] += 1.0
    found = detect(trace(loss))
    (event,) = found.events
    assert (event.kind, event.severity) == ("single_spike", "note")
    assert (event.first_step, event.last_step, event.recovered_step) == (201, 201, 202)
    assert event.size_frac == pytest.approx(1.0 / 2.2, rel=0.1)
    assert event.size_sigma is not None and event.size_sigma > 15.0
    assert (found.state, found.alarm) == ("healthy", False)


def test_one_record_of_twice_the_loss_is_a_warning() -> None:
    loss = healthy()
    loss[200] *= 4.0
    found = detect(trace(loss))
    assert main_event(found).kind == "single_spike"
    assert found.state == "unstable"


def test_spikes_in_a_row_alarm_and_recover() -> None:
    loss = healthy()
    loss[200:206] *= 1.5
    event = main_event(found := detect(trace(loss)))
    assert (event.kind, event.severity, found.state) == ("consecutive_spikes", "warn", "unstable")
    assert (event.first_step, event.last_step, event.recovered_step) == (201, 206, 207)
    assert not event.is_open


def test_a_jump_that_stays_never_recovers() -> None:
    loss = healthy()
    loss[200:] *= 1.4
    event = main_event(found := detect(trace(loss)))
    assert (event.kind, event.severity, found.state) == ("never_recovers", "fail", "diverged")
    assert event.first_step == 201
    assert event.recovered_step is None
    assert not event.is_open


def test_an_event_that_stays_lasts_as_long_as_the_loss_is_high() -> None:
    loss = healthy(900)
    loss[200:] *= 1.8
    (event,) = of_kind(detect(trace(loss)), "never_recovers")
    assert (event.first_step, event.last_step) == (201, 900)
    loss = healthy(900)
    loss[200:700] *= 1.8
    (event,) = of_kind(detect(trace(loss)), "never_recovers")
    assert event.last_step == pytest.approx(700, abs=10)
    assert event.recovered_step is None


def test_an_early_jump_that_stays_is_sure() -> None:
    loss = np.concatenate([healthy(13), np.full(300, 8.0) + 0.2 * healthy(300, noise=0.2)])
    (event,) = of_kind(detect(trace(loss)), "never_recovers")
    assert (event.first_step, event.confidence) == (14, "high")


def test_a_spike_at_the_last_record_is_not_sure() -> None:
    loss = healthy(200)
    loss[-1] = 12.0
    event = main_event(detect(trace(loss)))
    assert (event.kind, event.first_step, event.confidence) == ("single_spike", 200, "low")
    assert event.is_open and event.recovered_step is None


def test_a_late_return_turns_never_recovers_into_spikes() -> None:
    loss = healthy(600)
    loss[200:330] *= 1.8
    monitor = Monitor()
    feed(monitor, loss[:300])
    assert [event.kind for event in monitor.events] == ["never_recovers"]
    feed(monitor, loss[300:], first=301)
    (event,) = [event for event in monitor.events if event.first_step == 201]
    assert event.kind == "consecutive_spikes"
    assert event.recovered_step == pytest.approx(331, abs=16)


def test_an_event_at_the_end_stays_open() -> None:
    loss = healthy(210)
    loss[200:] *= 1.8
    monitor = Monitor()
    feed(monitor, loss)
    assert monitor.has_open
    monitor.finish()
    (event,) = monitor.events
    assert event.kind == "consecutive_spikes"
    assert event.is_open


def test_a_later_jump_is_seen_after_one_that_stayed() -> None:
    loss = healthy(600)
    loss[200:] *= 1.4
    loss[400:] *= 1.4
    kinds = [(event.kind, event.first_step) for event in detect(trace(loss)).events]
    assert ("never_recovers", 201) in kinds
    assert ("never_recovers", 401) in kinds


def test_nan_in_the_midst_of_an_event_changes_only_the_nan() -> None:
    loss = healthy()
    loss[200:206] *= 1.5
    with_nan = np.insert(loss, 203, math.nan)
    kinds = {event.kind: event for event in detect(trace(with_nan)).events}
    assert kinds["nonfinite"].first_step == 204
    assert kinds["consecutive_spikes"].first_step == 201
    assert kinds["consecutive_spikes"].recovered_step == 208


def test_bursts_of_a_run_with_frequent_mistakes_are_no_event() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        quiet = np.abs(0.02 + 0.005 * rng.standard_normal(400))
        loss = np.where(rng.random(400) < 0.12, 0.7, quiet)
        loss[:20] = 0.69
        assert not detect(trace(loss)).alarm


def test_a_rounded_log_of_constant_loss_has_no_spikes() -> None:
    loss = np.full(200, 0.05)
    loss[::7] = 0.06
    assert detect(trace(loss)).alarm is False
    assert of_kind(detect(trace(loss)), "consecutive_spikes") == []


def test_a_spike_is_reported_at_the_record_that_shows_it() -> None:
    loss = healthy(100)
    monitor = Monitor()
    feed(monitor, loss)
    (event,) = monitor.update(Point(step=101, loss=6.0))
    assert (event.kind, event.is_open) == ("single_spike", True)


def test_the_chance_of_high_records() -> None:
    assert tail(0, 8, 0.3) == pytest.approx(1.0)
    assert tail(8, 8, 0.5) == pytest.approx(0.5**8)
    assert in_a_row(3, 3, 0.005)
    assert not in_a_row(3, 2, 0.001)
    assert in_a_row(4, 2, 0.01)
    assert not in_a_row(4, 3, 0.15)
