"""The benchmark's own runs, small: no false alarm, the large faults found, and fast enough."""

from __future__ import annotations

import time

import pytest

from tests.benchmarks.series import INJECTIONS, synthetic, watch

AT = 2400
FOUND = {
    "NaN": "nonfinite",
    "+1 nat single": "single_spike",
    "5 x +0.5": "consecutive_spikes",
    "+2 nats never recovers": "never_recovers",
    "+5 % shift": "level_shift",
    "+10 %/1000 slow": "slow_divergence",
}


def test_healthy_runs_have_no_warning() -> None:
    for losses in synthetic(runs=3, steps=2500):
        events, _ = watch(losses)
        assert {event.severity for event in events} <= {"note"}


@pytest.mark.parametrize("name", sorted(FOUND))
def test_every_fault_is_found_and_named(name: str) -> None:
    (fault,) = [fault for fault in INJECTIONS if fault.name == name]
    (losses,) = synthetic(runs=1, steps=AT + 1000)
    losses[AT:] = fault.apply(losses[AT:].copy())
    events, seen = watch(losses)
    named = [event for event in events if event.kind == FOUND[name]]
    assert any(abs(event.first_step - AT) <= 200 for event in named)
    assert min(step for step, event in seen if event.first_step >= AT - 200) >= AT - 5


def test_a_step_costs_less_than_its_budget() -> None:
    (losses,) = synthetic(runs=1, steps=4000)
    start = time.perf_counter()
    watch(losses)
    assert (time.perf_counter() - start) / len(losses) < 200e-6
