"""Steps that move the weights far beyond those before."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pilot.checks.jump import NAME
from pilot.checks.registry import CheckResult, run_check
from tests.factories import build_view, make_gates, make_step, with_baseline

VIEW = build_view()


def judged(updates: list[float], rates: list[float] | None = None) -> CheckResult:
    """The check on steps with these relative updates and learning rates."""
    lrs = rates or [1e-3] * len(updates)
    steps = tuple(
        make_step(k, relative_update=update, learning_rate=rate)
        for k, (update, rate) in enumerate(zip(updates, lrs, strict=True), start=1)
    )
    return run_check(NAME, with_baseline(VIEW, steps=steps), make_gates())


def severity(result: CheckResult) -> str:
    assert result.measured
    return next((f.severity for f in result.findings), "")


def with_jump(value: float, at: int = 41) -> list[float]:
    return [0.012 if step != at else value for step in range(1, 61)]


@pytest.mark.parametrize(
    ("updates", "found"),
    [
        (with_jump(0.012), ""),
        (with_jump(0.477), "fail"),
        (with_jump(0.477, at=10), "fail"),
        (with_jump(0.477, at=60), "fail"),
        (with_jump(0.477, at=5), ""),  # nothing to compare with yet
        (with_jump(0.12), "warn"),
        (with_jump(0.1), ""),
        ([0.3] * 20 + [1.0] * 20, ""),  # large all along: other gates judge it
        (with_jump(math.nan), ""),
        (with_jump(math.inf), ""),
        ([0.001 * step for step in range(1, 61)], ""),  # a warm-up
    ],
)
def test_what_is_a_jump(updates: list[float], found: str) -> None:
    result = judged(updates)
    assert severity(result) == found
    if found:
        assert result.findings[0].step == next(
            k for k, update in enumerate(updates, start=1) if update > 0.1
        )


def test_a_schedule_that_begins_again_is_none() -> None:
    rates = [1e-6] * 30 + [1e-3] * 30
    assert severity(judged([10 * rate for rate in rates], rates)) == ""
    assert severity(judged(with_jump(0.477), [1e-5] * 40 + [1e-3] * 20)) == ""  # ratio 0.4 a rate
    assert severity(judged(with_jump(0.477), [math.nan] * 60)) == "fail"  # it finds its own step


def test_a_model_whose_weights_are_drawn_again_is_no_go() -> None:
    result = judged(with_jump(0.477))
    assert "step 41 moved the weights by 0.477 of their norm, 39.75 x as far" in result.sentence
    assert result.findings[0].category == "implementation"


@pytest.mark.parametrize("updates", [[], [0.1] * 7 + [0.9], [0.0] * 60])
def test_too_little_is_compared_with_nothing(updates: list[Any]) -> None:
    result = judged(updates)
    assert severity(result) == "" and "too few to compare" in result.sentence
