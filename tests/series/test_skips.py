"""Steps without an update, what comes after a NaN, and what came before it."""

from __future__ import annotations

import math

import pytest

from pilot.series import advice, detect
from pilot.series.detect import points
from pilot.series.leadup import lead_up, sentence
from pilot.series.monitor import Monitor
from pilot.series.point import Point
from pilot.series.types import LEARNING_RATE, SKIPPED, Series, Trace
from tests.series.make import healthy, main_event, series, trace

NAN = math.nan


def with_rate(loss: list[float], norms: list[float], rates: list[float]) -> Trace:
    made = trace(loss, norms)
    train = {**made.train, LEARNING_RATE: series(rates)}
    return Trace(source="", format="", axis="steps", train=train)


@pytest.mark.parametrize(
    ("count", "moves", "severity", "state"),
    [
        (1, True, "note", "too_short"),
        (2, True, "warn", "too_short"),
        (2, False, "note", "too_short"),
        (3, True, "fail", "dead"),
        (3, False, "note", "too_short"),
        (4, False, "fail", "dead"),
    ],
)
def test_grad_norms_that_are_never_finite(
    count: int, moves: bool, severity: str, state: str
) -> None:
    rates = [2e-4 - 1e-5 * moves * k for k in range(count)]
    found = detect(with_rate([0.6, 1.1, 0.6, 0.9][:count], [NAN] * count, rates))
    (event,) = found.events
    assert (event.severity, found.state) == (severity, state)
    assert (event.first_step, event.last_step) == (1, count)


def test_zeros_with_nan_norms_have_a_last_step() -> None:
    for count in (4, 13, 19):
        for event in detect(trace([0.0] * count, [NAN] * count)).events:
            assert (event.first_step, event.last_step) == (1, count)


def flags(skipped: list[bool], scale: float = 1024.0) -> Monitor:
    monitor = Monitor()
    for step, (flag, loss) in enumerate(zip(skipped, healthy(len(skipped)), strict=True), start=1):
        monitor.update(
            Point(step=step, loss=float(loss), grad_norm=1.0, loss_scale=scale, skipped=flag)
        )
    monitor.finish()
    return monitor


def kinds(monitor: Monitor) -> list[tuple[str, str, str]]:
    return [(event.kind, event.series, event.severity) for event in monitor.events]


def test_the_search_for_a_scale_and_isolated_skips_are_a_note() -> None:
    assert kinds(flags([True] * 15 + [False] * 85)) == [("nonfinite", SKIPPED, "note")]
    assert kinds(flags([False] * 50 + [True] + [False] * 50)) == [("nonfinite", SKIPPED, "note")]


def test_a_log_that_ends_in_skipped_steps_is_not_healthy() -> None:
    monitor = flags([False] * 40 + [True] * 10)
    (event,) = [event for event in monitor.events if event.severity == "fail"]
    assert (event.kind, event.first_step, event.last_step) == ("nonfinite", 41, 50)
    assert event.is_open and event.recovered_step is None


def test_nothing_but_skipped_steps_is_no_update() -> None:
    assert kinds(flags([True] * 10)) == [("nonfinite_first_step", SKIPPED, "warn")]
    assert kinds(flags([True] * 25))[-1] == ("nonfinite_first_step", SKIPPED, "fail")


def test_a_step_of_an_interval_is_not_all_of_it() -> None:
    train = {
        "loss": Series(steps=series([1.0] * 4, every=10).steps, values=series([2.0] * 4).values),
        SKIPPED: series([10.0, 3.0, 0.0, 10.0], every=10),
    }
    made = Trace(source="", format="", axis="steps", train=train)
    assert [point.skipped for point in points(made)] == [True, False, False, True]


def test_a_value_beyond_belief_is_no_recovery() -> None:
    assert detect(trace([2.0, 1.9, 2.1, NAN, 3e14, 3e14])).state == "diverged"
    assert detect(trace([2.0, 1.9, 2.1, NAN, 3.0, 2.2])).state == "unstable"


def test_zeros_after_a_nan_are_no_recovery_where_the_loss_has_a_level() -> None:
    loss = [2.0, 1.9, 2.1, NAN, 0.0, 0.0]
    assert main_event(detect(trace(loss))).recovered_step is None
    assert detect(trace(loss)).state == "diverged"
    assert detect(trace(loss, [1.0] * 6)).state == "unstable"
    assert detect(trace(loss, objective="rl")).state == "unstable"


def test_zeros_at_the_end_take_up_zeros_before() -> None:
    found = detect(trace([0.0] * 4 + [NAN, NAN, 3e14, 0.0, 0.0]))
    event = main_event(found)
    assert (event.kind, found.state, event.first_step, event.last_step) == (
        "zero_loss",
        "dead",
        1,
        9,
    )
    assert event.hint == "precision"


def test_the_advice_for_zeros_depends_on_what_hides_behind_them() -> None:
    labels = main_event(detect(trace([0.0] * 5, [0.0] * 5)))
    norms = main_event(detect(trace([0.0] * 5, [NAN] * 5)))
    huge = main_event(detect(trace([122.0] + [0.0] * 9)))
    assert "labels" in advice(labels.kind, labels.hint).test
    for event in (norms, huge):
        assert advice(event.kind, event.hint).look_first.startswith("precision")
        assert "FP32" in advice(event.kind, event.hint).test


def test_a_nan_names_what_moved_before_it() -> None:
    loss, norms = [1.84, 1.70, 1.66, 9.88, NAN], [3.1, 2.9, 41.5, math.inf, NAN]
    event = main_event(detect(trace(loss, norms)))
    assert (event.kind, event.series, event.first_step) == ("nonfinite", "loss", 5)
    assert event.grad_norm_lead_steps == 2
    assert "the loss rose from 1.7 to 9.88 at step 4" in event.detail
    assert "the grad norm rose from 3 to 41.5 at step 3" in event.detail


def test_what_did_not_move_is_not_named() -> None:
    rows = [(step, 2.0, 1.0) for step in range(1, 9)]
    assert sentence(lead_up(rows)) == ""
    assert sentence(lead_up([])) == sentence(lead_up([(1, 2.0, None), (2, 9.0, NAN)])) == ""
