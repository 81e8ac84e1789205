"""Losses without a level: what turns the level rules off, and what a policy loss still shows."""

from __future__ import annotations

import numpy as np
import pytest

from pilot.series import detect
from pilot.series.objective import Objective
from tests.series.make import Floats, healthy, main_event, trace


def blown_up(loss: Floats) -> Floats:
    """The last quarter at 8 and more."""
    loss[-len(loss) // 4 :] = 8.0 + 0.2 * healthy(len(loss) // 4)
    return loss


@pytest.mark.parametrize("objective", ["unknown", "preference", "other"])
def test_a_loss_that_fell_to_zero_has_a_level(objective: str) -> None:
    steps = np.arange(200)
    loss = blown_up(np.round(2.0 * np.exp(-steps / 12.0), 4))
    assert (loss == 0.0).sum() > 10
    norms = np.maximum(1e-3, 3.0 * np.exp(-steps / 14.0))
    found = detect(trace(loss, norms, objective=objective))
    assert (found.state, main_event(found).first_step, found.levelled) == ("diverged", 151, True)


def test_single_negative_records_are_glitches() -> None:
    loss = blown_up(healthy(400))
    loss[[20, 90, 150]] = -0.01
    found = detect(trace(loss, np.ones(400)))
    assert (found.state, found.levelled) == ("diverged", True)
    policy = 0.02 * np.random.default_rng(1).standard_normal(200)
    found = detect(trace(policy, np.ones(200)))
    assert (found.state, found.levelled) == ("healthy", False)


def test_when_the_level_rules_go_off() -> None:
    one = Objective("unknown")
    assert [one.see(0.0, 0.1, n) for n in (1, 2, 3)] == [False, False, True]
    assert not one.levelled
    late = Objective("unknown")
    assert not any(late.see(0.0, 0.1, n) for n in range(17, 99))
    few = Objective("unknown")
    assert not any(few.see(-1.0, None, n) for n in (20, 40, 60, 80))
    for fixed in ("lm", "preference"):
        kept = Objective(fixed)
        assert not any(kept.see(-1.0, 0.1, n) for n in range(1, 20)) and kept.levelled


def test_a_policy_without_any_gradient_is_dead() -> None:
    nothing = np.zeros(150)
    found = detect(trace(nothing, nothing, objective="rl"))
    event = main_event(found)
    assert (found.state, event.kind, event.confidence) == ("dead", "zero_loss", "high")
    assert detect(trace(nothing[:12], nothing[:12], objective="rl")).state == "healthy"
    rng = np.random.default_rng(3)
    loss, norms = 0.02 * rng.standard_normal(200), np.exp(0.3 * rng.standard_normal(200))
    loss[100:130] = norms[100:130] = 0.0  # batches whose rewards are all equal
    assert detect(trace(loss, norms, objective="rl")).state == "healthy"
    loss[100:] = norms[100:] = 0.0
    found = detect(trace(loss, norms, objective="rl"))
    assert (found.state, main_event(found).first_step) == ("dead", 101)


def test_fewer_facts_make_zeros_less_sure() -> None:
    loss = np.concatenate([healthy(60), np.zeros(40)])
    norms = np.concatenate([np.ones(60), np.full(40, np.nan)])
    assert main_event(detect(trace(loss, norms))).confidence == "high"
    assert main_event(detect(trace(loss))).confidence == "medium"
