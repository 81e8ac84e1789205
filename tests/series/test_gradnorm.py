"""The grad norm: alone a note, with the loss a warning, and its trend."""

from __future__ import annotations

import numpy as np

from pilot.series import advice, detect
from pilot.series.monitor import Monitor
from pilot.series.point import Point
from tests.series.make import healthy, of_kind, trace

BLOOM_NORMS = (0.242, 0.947, 2.39, 15.9, 145.0, 960.0)
BLOOM_LOSSES = (2.31, 2.20, 2.60, 2.41, 2.35, 5.10)


def bloom() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    loss = np.concatenate([2.35 + 0.06 * rng.standard_normal(200), BLOOM_LOSSES])
    norms = np.concatenate([0.24 * np.exp(0.08 * rng.standard_normal(200)), BLOOM_NORMS])
    return loss, norms


def test_the_published_trace_of_a_176b_model() -> None:
    loss, norms = bloom()
    monitor = Monitor()
    noted = warned = None
    for step, (value, norm) in enumerate(zip(loss.tolist(), norms.tolist(), strict=True)):
        for event in monitor.update(Point(step=31014 + step, loss=value, grad_norm=norm)):
            if event.kind == "grad_norm_alarm" and noted is None:
                noted = 31014 + step
            if event.severity == "warn" and warned is None:
                warned = 31014 + step
    assert noted is not None and noted <= 31219 - 3
    assert warned == 31219
    found = detect(trace(loss, norms, objective="lm"))
    (event,) = of_kind(found, "grad_norm_alarm")
    assert event.grad_norm_lead_steps == 3
    assert found.state == "unstable"


def test_a_pop_without_a_reaction_of_the_loss_is_a_note() -> None:
    norms = np.ones(200)
    norms[100] = 17.0
    found = detect(trace(healthy(200), norms))
    (event,) = found.events
    assert (event.kind, event.severity, event.first_step) == ("grad_norm_alarm", "note", 101)
    assert event.size_frac == 17.0
    assert found.alarm is False


def test_a_reaction_must_follow_within_eight_records() -> None:
    for delay, severity in ((4, "warn"), (12, "note")):
        norms, loss = np.ones(300), healthy(300)
        norms[200] = 30.0
        loss[200 + delay] *= 1.5
        (event,) = of_kind(detect(trace(loss, norms)), "grad_norm_alarm")
        assert event.severity == severity


def test_pops_that_are_frequent_in_both_are_chance() -> None:
    rng = np.random.default_rng(5)
    norms, loss = np.ones(400), healthy(400)
    norms[rng.choice(np.arange(50, 400), 24, replace=False)] = 20.0
    loss[rng.choice(np.arange(50, 400), 24, replace=False)] *= 1.5
    warned = [
        e for e in of_kind(detect(trace(loss, norms)), "grad_norm_alarm") if e.severity != "note"
    ]
    assert len(warned) <= 1


def test_zeros_constants_and_tiny_norms_have_no_ratio() -> None:
    for norms in (np.zeros(200), np.full(200, 3.0)):
        assert detect(trace(healthy(200), norms)).events == ()
    memorised = np.concatenate([np.ones(100), np.full(100, 1e-9)])
    memorised[150] = 1e-7
    assert of_kind(detect(trace(healthy(200), memorised)), "grad_norm_alarm") == []


def test_off_for_reinforcement_learning() -> None:
    norms = np.ones(200)
    norms[100] = 500.0
    assert detect(trace(healthy(200), norms, objective="rl")).events == ()


def test_without_a_level_a_norm_that_stays_high_is_a_note() -> None:
    rng = np.random.default_rng(2)
    loss, norms = 0.02 * rng.standard_normal(200), 0.3 * np.exp(0.2 * rng.standard_normal(200))
    norms[120:] *= 40.0
    found = detect(trace(loss, norms, objective="rl"))
    (event,) = found.events
    assert (event.kind, event.severity, event.first_step) == ("grad_norm_alarm", "note", 125)
    assert (found.state, found.levelled) == ("healthy", False)


def test_the_lead_is_measured_at_the_first_high_record() -> None:
    for lead in (0, 5, 29, 40):
        rng = np.random.default_rng(lead)
        norms, loss = 0.4 * np.exp(0.1 * rng.standard_normal(400)), healthy(400, seed=lead)
        norms[250 - lead :] *= 20.0
        loss[250:] *= 2.4
        (event,) = of_kind(detect(trace(loss, norms)), "never_recovers")
        assert (event.first_step, event.grad_norm_lead_steps) == (251, lead)


def test_no_lead_of_a_jump_that_is_over_long_ago_or_comes_after() -> None:
    for at in (200, 252):
        norms, loss = np.ones(400), healthy(400)
        norms[at] = 20.0
        loss[250:] *= 2.4
        (event,) = of_kind(detect(trace(loss, norms)), "never_recovers")
        assert event.grad_norm_lead_steps is None


def test_an_alarm_that_the_loss_followed_has_its_own_advice() -> None:
    norms, loss = np.ones(300), healthy(300)
    norms[200], loss[201] = 30.0, 2.0 * loss[201]
    (event,) = of_kind(detect(trace(loss, norms)), "grad_norm_alarm")
    assert (event.severity, event.hint) == ("warn", "reacted")
    assert advice(event.kind).then.startswith("nothing")
    assert not advice(event.kind, event.hint).then.startswith("nothing")


def test_a_norm_that_grows_while_the_loss_does_not_fall() -> None:
    growing = np.exp(np.linspace(0.0, 3.0, 400))
    flat = 2.0 + 0.02 * np.random.default_rng(1).standard_normal(400)
    (event,) = of_kind(detect(trace(flat, growing)), "grad_norm_trend")
    assert event.severity == "note"
    falling = flat * np.linspace(1.0, 0.5, 400)
    assert of_kind(detect(trace(falling, growing)), "grad_norm_trend") == []
    assert of_kind(detect(trace(flat, np.ones(400))), "grad_norm_trend") == []
