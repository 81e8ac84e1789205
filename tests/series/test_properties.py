"""Rules that hold for every series: no crash, finite output, scale, online = whole."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilot.series import detect
from pilot.series.detect import points
from pilot.series.monitor import Monitor
from pilot.series.types import (
    FAIL,
    HIGH,
    KINDS,
    LOW,
    MEDIUM,
    NOTE,
    STATES,
    WARN,
    Diagnosis,
    Event,
)
from tests.series.make import feed, healthy, series, trace

ANY = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True),
    st.sampled_from([0.0, 2.0, 2.1, 1e300, -1e300, 5e-324, math.nan, math.inf]),
)
RUNS = settings(max_examples=60, derandomize=True, deadline=None)


def check(found: Diagnosis) -> None:
    assert found.state in STATES
    assert list(found.events) == sorted(found.events, key=lambda event: event.first_step)
    for event in found.events:
        check_event(event)


def check_event(event: Event) -> None:
    assert event.kind in KINDS
    assert event.severity in (NOTE, WARN, FAIL)
    assert event.confidence in (LOW, MEDIUM, HIGH)
    assert event.first_step <= event.last_step
    assert event.detail
    for value in dataclasses.astuple(event):
        assert not isinstance(value, float) or math.isfinite(value)


@RUNS
@given(
    loss=st.lists(ANY, max_size=120),
    norms=st.lists(ANY, max_size=120),
    validation=st.lists(ANY, max_size=12),
    objective=st.sampled_from(["lm", "rl", "preference", "other", "unknown"]),
)
def test_any_series_gives_finite_events(
    loss: list[float], norms: list[float], validation: list[float], objective: str
) -> None:
    sets = {"": series(validation, every=7), "x": series(validation[::-1])}
    check(detect(trace(loss, norms, validations=sets, objective=objective)))


@RUNS
@given(
    runs=st.lists(st.tuples(ANY, st.integers(1, 40)), min_size=1, max_size=12),
    norm=ANY,
)
def test_series_with_long_constant_stretches(runs: list[tuple[float, int]], norm: float) -> None:
    loss = [value for value, count in runs for _ in range(count)]
    check(detect(trace(loss, [norm] * len(loss))))


def faulty(seed: int, fault: str, at: int) -> np.ndarray:
    loss = healthy(400, noise=0.03, seed=seed)
    if fault == "jump":
        loss[at:] *= 1.6
    elif fault == "spikes":
        loss[at : at + 6] *= 1.8
    elif fault == "nan":
        loss[at:] = math.nan
    elif fault == "single":
        loss[at] *= 1.6
    return loss


FAULTS = {
    "jump": "never_recovers",
    "spikes": "consecutive_spikes",
    "nan": "nonfinite",
    "single": "single_spike",
}


@RUNS
@given(seed=st.integers(0, 99), fault=st.sampled_from(sorted(FAULTS)), at=st.integers(40, 300))
def test_a_planted_event_is_found_where_it_was_planted(seed: int, fault: str, at: int) -> None:
    events = detect(trace(faulty(seed, fault, at))).events
    kinds = {event.kind for event in events if abs(event.first_step - (at + 1)) <= 1}
    assert FAULTS[fault] in kinds


@RUNS
@given(
    seed=st.integers(0, 30),
    fault=st.sampled_from(sorted(FAULTS)),
    factor=st.floats(0.1, 10.0),
)
def test_the_scale_of_the_loss_changes_nothing(seed: int, fault: str, factor: float) -> None:
    loss = faulty(seed, fault, 150)
    plain, scaled = detect(trace(loss)), detect(trace(loss * factor))
    keep = [dataclasses.replace(event, detail="") for event in plain.events]
    other = [dataclasses.replace(event, detail="") for event in scaled.events]
    assert [(e.kind, e.first_step, e.severity) for e in keep] == [
        (e.kind, e.first_step, e.severity) for e in other
    ]
    assert [e.size_frac for e in keep] == pytest.approx([e.size_frac for e in other], abs=2e-4)


@RUNS
@given(seed=st.integers(0, 30), bad=st.integers(0, 149), fault=st.sampled_from(["jump", "spikes"]))
def test_a_nan_anywhere_never_silences_later_events(seed: int, bad: int, fault: str) -> None:
    loss = faulty(seed, fault, 200)
    loss[bad] = math.nan
    found = {event.kind: event.first_step for event in detect(trace(loss)).events}
    assert found[FAULTS[fault]] == 201
    assert any(kind.startswith("nonfinite") for kind in found)


@RUNS
@given(seed=st.integers(0, 30), fault=st.sampled_from(sorted(FAULTS)), at=st.integers(20, 380))
def test_online_and_whole_give_the_same_events(seed: int, fault: str, at: int) -> None:
    loss = faulty(seed, fault, at)
    norms = np.exp(0.2 * np.random.default_rng(seed).standard_normal(400))
    whole = trace(loss, norms)
    monitor = Monitor(objective=whole.objective)
    said = [event for point in points(whole) for event in monitor.update(point)]
    said += monitor.finish()
    assert monitor.events == tuple(e for e in detect(whole).events if e.kind != "no_progress")
    assert set(monitor.events) <= set(said)


def test_what_a_monitor_says_does_not_depend_on_what_follows() -> None:
    loss = faulty(1, "jump", 150)
    short, long = Monitor(), Monitor()
    said = feed(short, loss[:260])
    assert feed(long, loss)[: len(said)] == said


def test_the_engine_needs_numpy_only() -> None:
    code = (
        "import sys, pilot.series\n"
        "bad = {'torch', 'scipy', 'matplotlib', 'mlflow', 'hydra'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
