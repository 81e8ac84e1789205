"""NaN, infinity, zeros without a gradient, and steps that a scaler skipped."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pilot.series import detect
from pilot.series.monitor import Monitor
from pilot.series.point import Point
from pilot.series.types import Event
from tests.series.make import healthy, main_event, of_kind, trace

NAN = math.nan


def kinds(events: tuple[Event, ...]) -> list[tuple[str, str, int]]:
    return [(event.kind, event.severity, event.first_step) for event in events]


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_fails_at_once(bad: float) -> None:
    loss = healthy(100)
    loss[60:] = bad
    found = detect(trace(loss))
    assert kinds(found.events) == [("nonfinite", "fail", 61)]
    assert main_event(found).last_step == 100
    assert (found.state, main_event(found).is_open) == ("diverged", True)


def test_not_finite_from_the_first_record_on() -> None:
    found = detect(trace([NAN] * 12))
    assert kinds(found.events) == [("nonfinite_first_step", "fail", 1)]


def test_one_nan_recovers_and_hides_nothing_after_it() -> None:
    loss = healthy(400)
    loss[100] = NAN
    loss[250:] *= 1.5
    found = detect(trace(loss))
    first, second = found.events
    assert (first.kind, first.first_step, first.recovered_step) == ("nonfinite", 101, 102)
    assert (second.kind, second.first_step) == ("never_recovers", 251)


def test_two_nans_close_together_are_one_event_far_apart_two() -> None:
    near, far = healthy(100), healthy(100)
    near[[40, 45]] = NAN
    far[[40, 70]] = NAN
    assert [e.last_step for e in of_kind(detect(trace(near)), "nonfinite")] == [46]
    assert [e.first_step for e in of_kind(detect(trace(far)), "nonfinite")] == [41, 71]


def points(*rows: tuple[float | None, float | None, float | None]) -> Monitor:
    monitor = Monitor(objective="unknown")
    for step, (loss, grad_norm, scale) in enumerate(rows, start=1):
        monitor.update(Point(step=step, loss=loss, grad_norm=grad_norm, loss_scale=scale))
    monitor.finish()
    return monitor


def test_a_missing_loss_beside_a_nan_grad_norm() -> None:
    found = points((2.0, 1.0, None), (None, NAN, None), (None, NAN, None))
    assert kinds(found.events)[0] == ("nonfinite", "fail", 2)


def test_a_missing_loss_of_a_skipped_step_is_a_note() -> None:
    rows = [(2.0, 1.0, 65536.0)] * 9 + [(None, math.inf, 65536.0)] + [(2.0, 1.0, 32768.0)] * 9
    assert [event.severity for event in points(*rows).events] == ["note"]


def test_isolated_nan_grad_norms_beside_a_finite_loss_are_a_note() -> None:
    grad_norm = np.ones(39)
    grad_norm[[0, 8]] = NAN
    found = detect(trace(healthy(39), grad_norm))
    assert kinds(found.events) == [("nonfinite", "note", 1)]
    assert found.state == "healthy"


def test_many_of_them_are_a_warning_five_in_a_row_fail() -> None:
    often, row = np.ones(200), np.ones(200)
    often[20::20] = NAN
    row[100:105] = NAN
    assert kinds(detect(trace(healthy(200), often)).events) == [("nonfinite", "warn", 21)]
    found = detect(trace(healthy(200), row))
    assert ("nonfinite", "fail", 101) in kinds(found.events)
    assert found.state == "unstable"


def test_no_finite_gradient_ever_is_a_dead_run() -> None:
    found = detect(trace([4.7, 4.6, 4.7, 4.5], [NAN] * 4))
    assert main_event(found).kind == "nonfinite_first_step"
    assert found.state == "dead"


def test_a_loss_scale_that_collapses() -> None:
    rows = [(2.0, 1.0, 2.0**k) for k in range(5, -3, -1)]
    assert kinds(points(*rows).events) == [("nonfinite", "fail", 7)]


def test_zero_loss_with_zero_gradient_from_the_start() -> None:
    found = detect(trace(np.zeros(50), np.zeros(50)))
    assert kinds(found.events) == [("zero_loss", "fail", 1)]
    assert (found.state, main_event(found).last_step) == ("dead", 50)


def test_zero_loss_with_a_nan_gradient_needs_one_record() -> None:
    found = detect(trace([0.0], [NAN]))
    assert (main_event(found).kind, found.state) == ("zero_loss", "dead")


def test_zero_loss_with_a_live_gradient_is_no_event() -> None:
    found = detect(trace(np.zeros(50), np.full(50, 0.1)))
    assert (found.state, found.events) == ("healthy", ())


def test_a_loss_that_falls_to_zero_at_once_is_dead_one_that_learns_to_is_not() -> None:
    abrupt = healthy(60)
    abrupt[40:] = 0.0
    found = detect(trace(abrupt))
    assert (main_event(found).kind, main_event(found).first_step) == ("zero_loss", 41)
    learned = np.round(2.0 * np.exp(-np.arange(200) / 12.0), 4)
    assert learned[-1] == 0.0
    assert detect(trace(learned)).alarm is False


def test_isolated_zero_batches_are_no_alarm() -> None:
    loss, grad_norm = healthy(100), np.ones(100)
    loss[[20, 60]] = 0.0
    grad_norm[[20, 60]] = 0.0
    assert detect(trace(loss, grad_norm)).events == ()
