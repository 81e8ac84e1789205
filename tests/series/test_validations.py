"""Validations, progress, and the state of a run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pilot.series import advice, detect
from pilot.series.state import diagnose
from pilot.series.text import sigmas
from pilot.series.types import ALARM_STATES, KINDS, Event, Series
from pilot.series.validations import primary, series_name
from tests.series.make import healthy, main_event, of_kind, series, trace


def run(*validations: float, name: str = "") -> Series:
    return series(validations, every=100)


RISING = run(1.2, 1.0, 0.95, 1.02, 1.12, 1.25, 1.4)
FALLING = run(1.2, 1.0, 0.95, 0.93, 0.92, 0.91, 0.905)


def test_a_rising_validation_is_over_fitting() -> None:
    found = detect(trace(healthy(700), validations={"": RISING}))
    event = main_event(found)
    assert (found.state, found.alarm) == ("overfitting", False)
    assert (event.kind, event.series) == ("validation_worsening", "validation")
    assert (event.first_step, event.last_step) == (300, 700)
    assert event.size_frac is not None and abs(event.size_frac - (1.4 / 0.95 - 1)) < 0.01


def test_a_slight_rise_and_a_fall_are_healthy() -> None:
    slight = run(1.64, 1.57, 1.5518, 1.56, 1.57, 1.577)
    for validation in (slight, FALLING):
        assert detect(trace(healthy(700), validations={"": validation})).state == "healthy"


def test_one_last_high_validation_is_a_note() -> None:
    falling = healthy(1000)[300:] * np.linspace(1.1, 1.0, 700)
    for values, first in (
        ((1.2, 1.0, 0.95, 1.4), 300),
        ((1.38, 1.36, 2.2), 200),
        ((1.38, 1.36, 1.41, 1.50), 200),
    ):
        found = detect(trace(falling, validations={"": run(*values)}))
        (event,) = found.events
        assert (event.kind, event.severity, found.state) == (
            "validation_worsening",
            "note",
            "healthy",
        )
        assert (event.first_step, event.is_open, event.confidence) == (first, True, "low")
        assert event.size_frac == pytest.approx(values[-1] / min(values) - 1.0, abs=1e-3)
    for fine in ((1.2, 1.0, 0.95, 1.0), (1.0, 0.9, 1.1, 0.85, 1.05), (1.38, 1.36)):
        assert detect(trace(falling, validations={"": run(*fine)})).events == ()


def test_no_sigmas_without_noise() -> None:
    exact = run(1.2, 1.0, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4)
    event = main_event(detect(trace(healthy(700), validations={"": exact})))
    assert event.size_sigma is None
    assert sigmas(1.0, 0.1, 2.0) == 10.0
    assert sigmas(1.0, 1e-16, 2.0) is None and sigmas(0.0, 0.0, 0.0) is None


def test_noise_of_the_validation_is_not_worsening() -> None:
    noisy = run(1.0, 0.8, 1.1, 0.75, 1.05, 0.7, 1.0, 0.78, 1.02)
    assert (
        of_kind(detect(trace(healthy(900), validations={"": noisy})), "validation_worsening") == []
    )


def test_the_primary_set_decides_and_others_are_notes() -> None:
    sets = {"a": FALLING, "b": RISING}
    found = detect(trace(healthy(700), validations=sets))
    assert found.state == "healthy"
    (event,) = found.events
    assert (event.series, event.severity) == ("validation/b", "note")
    assert (
        detect(trace(healthy(700), validations={"b": RISING, "a": FALLING})).state == "overfitting"
    )
    assert primary({}) is None
    assert primary({"x": run(1.0), "y": run(1.0, 2.0)}) == "y"
    assert primary({"x": run(1.0, 2.0), "": run(1.0)}) == ""
    assert series_name("x") == "validation/x"


def test_training_falls_and_validation_does_not() -> None:
    loss = healthy(700) * np.linspace(1.0, 0.6, 700)
    flat = run(1.30, 1.301, 1.299, 1.302, 1.298, 1.301)
    event = main_event(found := detect(trace(loss, validations={"": flat})))
    assert event.kind == "validation_not_improving"
    assert found.state == "overfitting"


def test_a_validation_that_is_not_finite_fails() -> None:
    found = detect(trace(healthy(300), validations={"": run(1.2, 1.0, math.nan, math.nan)}))
    event = main_event(found)
    assert (event.kind, event.series, event.first_step) == ("nonfinite", "validation", 300)
    assert found.state == "diverged"


def test_a_log_of_validations_only_is_judged_by_them() -> None:
    fine = series(3.0 + 7.0 / (1.0 + np.arange(16)), every=125)
    assert detect(trace(None, validations={"": fine})).state == "healthy"
    values = healthy(120)
    values[80:] *= 2.0
    found = detect(trace(None, validations={"v": series(values, every=10)}))
    assert (found.state, main_event(found).series) == ("diverged", "validation/v")
    assert main_event(found).first_step == 810


def test_no_progress_needs_records_and_no_better_validation() -> None:
    rng = np.random.default_rng(0)
    flat = 2.1 + 0.1 * rng.standard_normal(100)
    found = detect(trace(flat))
    assert (found.state, found.alarm, main_event(found).kind) == (
        "no_progress",
        False,
        "no_progress",
    )
    assert detect(trace(flat[:20])).state == "healthy"
    assert detect(trace(flat, validations={"": FALLING})).state == "healthy"
    assert detect(trace(flat * np.linspace(1.1, 0.95, 100))).state == "healthy"
    assert detect(trace(np.full(50, 3.0))).state == "no_progress"
    assert detect(trace(flat - 2.1, objective="rl")).state == "healthy"


def test_too_short_and_unreadable() -> None:
    assert detect(trace([11.0, 10.9, 10.8, 10.4, 9.9])).state == "too_short"
    assert detect(trace(None)).state == "unreadable"
    assert detect(trace([])).state == "unreadable"
    assert detect(trace([5.0, 4.0, math.nan])).state == "diverged"


def test_a_policy_loss_has_no_level() -> None:
    rng = np.random.default_rng(6)
    loss = 0.02 * rng.standard_t(2, 150)
    found = detect(trace(loss, np.abs(rng.standard_t(1, 150))))
    assert (found.state, found.alarm) == ("healthy", False)
    assert all(event.severity == "note" for event in found.events)
    rounded = np.round(np.abs(loss) * 0.01, 4)
    assert detect(trace(rounded, np.full(150, 0.1))).alarm is False


def event(kind: str, severity: str, **fields: object) -> Event:
    made = {"series": "loss", "first_step": 5, "last_step": 9, "confidence": "high", **fields}
    return Event(kind=kind, severity=severity, **made)  # type: ignore[arg-type]


def test_the_worst_event_makes_the_state() -> None:
    spikes = event("consecutive_spikes", "warn", first_step=1, size_sigma=90.0)
    gone = event("never_recovers", "fail", size_sigma=5.0)
    found = diagnose([spikes, gone], short=False, empty=False)
    assert (found.state, found.main) == ("diverged", 1)
    assert diagnose([spikes], short=True, empty=False).state == "unstable"


def test_of_rises_that_stay_the_first_large_one_is_the_main_one() -> None:
    steps = ((100, 12.0), (200, 35.0), (300, 44.0), (400, 50.0))
    rises = [
        event("never_recovers", "fail", first_step=at, last_step=900, size_sigma=sigma)
        for at, sigma in steps
    ]
    assert diagnose(rises, short=False, empty=False).main == 1
    back = event("never_recovers", "fail", first_step=50, size_sigma=90.0, recovered_step=70)
    assert diagnose([back, *rises], short=False, empty=False).main == 2


def test_a_fall_in_the_first_records_is_progress() -> None:
    flat, fell = [], []
    for seed in range(6):
        noise = np.exp(0.2 * np.random.default_rng(seed).standard_normal(1000))
        flat.append(detect(trace(1.1 * noise)).state)
        start = 1.0 + 0.5 * np.exp(-np.arange(1000) / 30.0)
        fell.append(detect(trace(1.1 * noise * start)).state)
    assert set(fell) == {"healthy"}
    assert flat.count("no_progress") >= 4


def test_a_rise_is_told_from_a_flat_loss() -> None:
    rng = np.random.default_rng(4)
    for end, hint in ((2.0, ""), (2.12, "rising")):
        loss = np.linspace(2.0, end, 300) * (1.0 + 0.02 * rng.standard_normal(300))
        found = main_event(detect(trace(loss)))
        assert (found.kind, found.hint) == ("no_progress", hint)
    assert "x 1/3" in advice("no_progress", "rising").test


def test_a_note_never_makes_a_state_and_alarm_is_its_states() -> None:
    for kind in KINDS:
        quiet = diagnose([event(kind, "note")], short=False, empty=False)
        assert (quiet.state, quiet.alarm, quiet.main) == ("healthy", False, None)
        loud = diagnose([event(kind, "fail")], short=False, empty=False)
        assert loud.alarm == (loud.state in ALARM_STATES)
