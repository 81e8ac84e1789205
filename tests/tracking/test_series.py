from __future__ import annotations

import dataclasses
import math

from pilot.tracking import series
from pilot.view import PilotView, join_fork
from tests.factories import build_view, make_validation, with_baseline
from tests.tracking.pilots import BROKEN_STEP, FORK_STEP, LAST_STEP, five_arms


def _joined() -> PilotView:
    """As ``load`` gives it."""
    view = five_arms()
    baseline = view.arms["baseline"]
    others = {n: join_fork(baseline, arm) for n, arm in view.arms.items() if n != "baseline"}
    return dataclasses.replace(view, arms={"baseline": baseline, **others})


def _steps(points: list[series.Point], name: str) -> list[int]:
    return [point.step for point in points if point.name == name]


def test_a_curve_is_finite_and_in_the_order_of_its_steps() -> None:
    view = _joined()
    points = series.arm_points(view, view.arms["lr_x3"])
    assert all(math.isfinite(p.value) for p in points)
    assert points == sorted(points, key=lambda p: (p.name, p.step))
    assert _steps(points, "train/loss") == list(range(1, BROKEN_STEP))
    assert _steps(points, "train/learning_rate") == list(range(1, LAST_STEP + 1))
    assert _steps(points, "train/loss_scale") == []  # there is none: no metric, no zero
    loss = [p for p in points if p.name == "train/loss"]
    assert all(a.secs < b.secs for a, b in zip(loss, loss[1:], strict=False))


def test_a_forked_arm_has_the_joined_curve_on_the_baselines_clock() -> None:
    view = _joined()
    forked = series.arm_points(view, view.arms["clip_off"])
    whole = series.arm_points(view, view.arms["baseline"])
    assert _steps(forked, "train/loss") == list(range(1, 49))
    assert _steps(forked, "val/held_out") == _steps(whole, "val/held_out")
    shared = [p for p in whole if p.name == "train/loss" and p.step <= FORK_STEP]
    assert [p for p in forked if p.name == "train/loss"][:FORK_STEP] == shared
    assert _steps(forked, "train/tokens_per_sec") == list(range(1, 49))
    assert _steps(forked, "train/cooldown_loss") == list(range(49, 57))


def test_the_difference_to_the_baseline_is_taken_step_by_step() -> None:
    view = _joined()
    points = series.arm_points(view, view.arms["lr_x3"])
    differences = {p.step: p.value for p in points if p.name == "pilot/loss_difference"}
    assert differences[20] == 0.0
    assert differences[30] == 0.6  # six digits: not 0.6000000000000001
    assert max(differences) == BROKEN_STEP - 1
    own = series.arm_points(view, view.arms["baseline"])
    assert not _steps(own, "pilot/loss_difference")


def test_a_repeated_validation_counts_once() -> None:
    view = build_view()
    assert view.baseline is not None
    again = make_validation("before", 0, 2.5)
    view = with_baseline(view, validations=(*view.baseline.validations, again))
    assert view.baseline is not None
    points = series.arm_points(view, view.baseline)
    found = [p.value for p in points if p.name == "val/held_out" and p.step == 0]
    assert [round(value, 3) for value in found] == [round(again.loss, 3)]


def test_numbers_of_an_arm() -> None:
    view = _joined()
    row = {
        "final_loss": 2.10000049,
        "difference": {"value": 0.1, "se": 0.01},
        "effect": {"value": 0.2, "half_width": 0.05, "basis": "step loss"},
    }
    assert series.arm_scalars(view.arms["lr_x3"], row) == {
        "pilot/difference": 0.2,
        "pilot/final_loss": 2.1,
        "pilot/nonfinite_steps": 2.0,
        "pilot/own_steps": 32.0,
        "train/clipped_frac": 0.25,
    }
    row = {"final_loss": math.nan, "difference": {"value": 0.1}, "effect": None}
    values = series.arm_scalars(view.arms["baseline"], row)
    assert values["pilot/difference"] == 0.1
    assert "pilot/final_loss" not in values


def test_fewer_than_thirty_metric_names_whatever_the_recipe_has() -> None:
    view = build_view()
    sets = [
        make_validation("before", 0, 3.0, name=f"s/{i} (x)", primary=i == 40) for i in range(60)
    ]
    full = {
        name: dataclasses.replace(
            arm,
            validations=tuple(sets),
            steps=tuple(dataclasses.replace(r, loss_scale=2.0) for r in arm.steps),
        )
        for name, arm in view.arms.items()
    }
    view = dataclasses.replace(view, arms=full)
    row = {"final_loss": 1.0, "difference": {"value": 1.0}}
    arm = view.arms["lr_x1_3"]
    names = {p.name for p in series.arm_points(view, arm)} | set(series.arm_scalars(arm, row))
    assert len(names) == series.MAX_METRIC_NAMES == 29
    assert "val/s_40 _x_" in names  # the primary set always has room


def test_an_arm_without_records_has_no_points() -> None:
    view = _joined()
    empty = dataclasses.replace(
        view.arms["lr_x3"], steps=(), cooldown=(), validations=(), resources=()
    )
    assert series.arm_points(view, empty) == []
    assert "train/clipped_frac" not in series.arm_scalars(empty, {})
    assert series.arm_secs(empty) == 0.0
