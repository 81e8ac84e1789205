from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from pilot.checks.early_damage import check
from pilot.checks.registry import CheckResult
from tests.factories import build_view, make_gates, make_step, with_baseline


def run(losses: list[float], objective: str = "lm", **gate: Any) -> CheckResult:
    view = build_view(survey={"objective": objective})
    steps = tuple(make_step(i + 1, loss=loss) for i, loss in enumerate(losses))
    view = with_baseline(view, steps=steps)
    assert view.baseline is not None
    return check(view, make_gates(early_damage=gate), view.baseline)


def test_falling_and_constant_losses_pass() -> None:
    for losses in ([3.0 - 0.1 * i for i in range(20)], [2.0] * 20):
        result = run(losses)
        assert result.measured and result.findings == ()
    assert run([2.0] * 20).numbers["worst_ratio"] == 1.0


def test_three_steps_above_the_limit_warn_and_two_do_not() -> None:
    # A median of 4 is high with 3 high values: k in a row give k - 1 high windows.
    low, high = [2.0] * 6, 3.01
    assert run([*low, *[high] * 3, *[1.0] * 9]).findings == ()
    result = run([*low, *[high] * 4, *[1.0] * 9])
    assert [f.severity for f in result.findings] == ["warn"]
    assert result.findings[0].step == 11
    assert result.numbers["worst_ratio"] == 3.01 / 2.0


def test_exactly_the_limit_passes() -> None:
    assert run([2.0, *[3.0] * 20]).findings == ()
    assert len(run([2.0, *[3.0001] * 20]).findings) == 1
    assert run([2.0, *[3.0001] * 20], max_loss_ratio=1.6).findings == ()


def test_only_full_windows_count() -> None:
    # Steps 1 to 4 are the first full window: the transient at steps 2 and 3 alone is normal.
    assert run([2.0, 12.0, 12.0, 2.0, 2.0, 2.0, 2.0, 2.0]).findings == ()


def test_interrupted_runs_above_do_not_add_up() -> None:
    hold = {"smooth_steps": 1}
    assert run([2.0, 9.0, 9.0, 2.0, 9.0, 9.0, 2.0], **hold).findings == ()
    result = run([2.0, 9.0, 9.0, 9.0, 2.0], **hold)
    assert result.findings[0].step == 4


def test_non_finite_losses_are_left_out() -> None:
    losses = [2.0, math.nan, 2.0, math.inf, *[2.0] * 10]
    result = run(losses)
    assert result.measured and result.findings == () and result.numbers["worst_ratio"] == 1.0


@pytest.mark.parametrize("first", [math.nan, math.inf, 0.0, -1.0])
def test_no_reference_is_not_measured(first: float) -> None:
    result = run([first, *[9.0] * 20])
    assert not result.measured and "no reference" in result.reason


def test_too_few_and_none_are_not_measured() -> None:
    assert not run([]).measured
    assert not run([2.0] * 5).measured
    assert run([2.0] * 6).measured


def test_other_objectives_are_not_measured() -> None:
    result = run([2.0, *[9.0] * 20], objective="rl")
    assert not result.measured and "not rl" in result.reason


def test_cool_down_is_not_looked_at() -> None:
    view = build_view()
    assert view.baseline is not None
    high = tuple(dataclasses.replace(r, loss=99.0) for r in view.baseline.cooldown)
    view = with_baseline(view, cooldown=high)
    assert view.baseline is not None
    assert check(view, make_gates(), view.baseline).findings == ()
