"""Damage in the first records."""

from __future__ import annotations

import numpy as np

from pilot.series import detect
from tests.series.make import healthy, main_event, of_kind, trace


def test_a_run_that_diverges_at_once() -> None:
    found = detect(trace([1.0, 4.4, 8.8, 13.5, 15.7, 15.0, 18.8, 20.8, 25.6, 29.6], every=10))
    event = main_event(found)
    assert (event.kind, event.severity, found.state) == ("early_damage", "fail", "diverged")
    assert (event.first_step, event.recovered_step, event.is_open) == (20, None, True)


def test_a_jump_after_one_good_record_that_is_never_undone() -> None:
    rng = np.random.default_rng(2)
    loss = np.concatenate([[0.35], 1.2 + 8.0 * np.exp(-np.arange(200) / 15.0)])
    found = detect(trace(loss * (1.0 + 0.1 * rng.standard_normal(201))))
    assert main_event(found).kind == "early_damage"
    assert main_event(found).first_step == 2
    assert found.state == "diverged"


def test_damage_that_is_undone_is_unstable() -> None:
    loss = healthy(200)
    loss[2:12] *= 3.0
    event = main_event(found := detect(trace(loss)))
    assert (event.kind, event.severity, found.state) == ("early_damage", "warn", "unstable")
    assert event.first_step == 3
    assert event.recovered_step is not None and 12 <= event.recovered_step <= 20


def test_a_transient_of_one_record_is_normal() -> None:
    loss = healthy(100)
    loss[1] = 8.0
    assert detect(trace(loss)).events == ()


def test_a_low_first_record_of_a_noisy_run_is_no_damage() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        loss = 1.2 * np.exp(0.4 * rng.standard_normal(60))
        loss[0] = 0.5
        assert of_kind(detect(trace(loss)), "early_damage") == []


def test_a_hump_of_a_third_is_no_damage() -> None:
    rise = np.linspace(3.0, 4.0, 6)
    fall = np.linspace(3.9, 2.1, 40)
    assert detect(trace(np.concatenate([rise, fall]))).alarm is False
