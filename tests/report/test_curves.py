from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from pilot.records import Outcome, StepRecord
from pilot.report import curves
from pilot.report.curves import DECIDED, DIVERGED, LOST, drawing
from tests.factories import LOWER, build_view, with_arm, with_baseline
from tests.report.parts import add_arm, arm_row, effect, several_arms


def test_arms_come_in_their_order_and_say_how_they_ended() -> None:
    rows = [
        arm_row("lr_x1_10", status="decided", num_steps=20),
        arm_row("clip_off", status="identical"),
        arm_row("lr_x3", status="stopped", num_steps=30, effect=effect(word="diverged")),
    ]
    found = drawing(several_arms(), {"arms": rows})
    assert [(c.text, c.ending) for c in found.curves] == [
        ("baseline", ""),
        ("lr x1/3", ""),
        ("lr x1/10: worse, ended at 20", DECIDED),
        ("lr x3: diverged at 30", DIVERGED),
        ("replica 1", ""),
    ]
    assert found.only_named == ("clip off: identical", "replica 2: not run")
    assert [c.is_replica for c in found.curves] == [False, False, False, False, True]
    assert found.width == 5


def test_the_records_say_it_where_the_verdict_has_no_row() -> None:
    found = drawing(several_arms(), {})
    assert [c.text for c in found.curves][2:4] == [
        "lr x1/10: ended at 20",
        "lr x3: stopped at 30",
    ]
    assert found.only_named == ("clip off: identical", "replica 2: not run")


@pytest.mark.parametrize(
    ("changes", "ending"),
    [
        ({"outcome": Outcome(status="exception", last_step=48)}, LOST),
        ({"outcome": Outcome(status="out_of_memory", last_step=48)}, LOST),
        ({"outcome": None}, LOST),
        ({"outcome": None, "absence": {"status": "lost", "reason": "killed"}}, LOST),
        ({}, ""),
    ],
)
def test_how_an_arm_ended(changes: dict[str, Any], ending: str) -> None:
    curve = drawing(with_arm(build_view(), LOWER, **changes), {}).curves[1]
    assert curve.ending == ending


def test_a_forked_arm_begins_at_its_fork_with_the_median_of_the_whole() -> None:
    view = build_view()
    whole = drawing(view, {}).curves[1]
    job = dataclasses.replace(view.arms[LOWER].job, fork_step=12)
    forked = drawing(with_arm(view, LOWER, job=job), {}).curves[1]
    assert (forked.steps[0], forked.steps[-1], len(forked.steps)) == (12, 56, 45)
    np.testing.assert_array_equal(forked.smooth["loss"], whole.smooth["loss"][11:])
    assert [v.at for v in whole.validations] == ["before", "warmup_end", "peak_end", "cooldown_end"]
    assert [v.at for v in forked.validations] == ["peak_end", "cooldown_end"]


def test_an_arm_that_was_lost_before_its_first_own_step_is_only_named() -> None:
    view = build_view()
    arm = view.arms[LOWER]
    job = dataclasses.replace(arm.job, fork_step=12)
    view = with_arm(view, LOWER, job=job, steps=arm.steps[:12], cooldown=(), outcome=None)
    found = drawing(view, {})
    assert [c.name for c in found.curves] == ["baseline"]
    assert found.only_named == ("lr x1/3: lost at 12",)


def test_values_without_a_place_on_an_axis() -> None:
    def spoil(record: StepRecord) -> StepRecord:
        loss = {1: math.nan, 2: math.inf, 3: 1e300, 4: -1e300}.get(record.step, 2.0)
        return dataclasses.replace(record, loss=loss)

    curve = drawing(build_view(baseline={"edit": spoil}), {}).curves[0]
    np.testing.assert_array_equal(curve.series["loss"][:5], [np.nan, np.nan, 1e100, -1e100, 2.0])
    view = with_baseline(build_view(), steps=(), cooldown=())
    assert drawing(view, {}).only_named == ("baseline",)
    assert drawing(dataclasses.replace(view, arms={}), {}).curves == ()


def test_a_long_title_is_cut_and_harmless() -> None:
    view = add_arm(build_view(), "x", job={"title": "a\x1b[31m" + "b" * 90})
    assert drawing(view, {}).curves[2].text == "a" + "b" * 36 + "..."


def test_smooth_is_a_median_that_skips_non_finite_values() -> None:
    values = np.array([1.0, 9.0, 1.0, math.nan, 3.0, 2.0])
    smoothed = curves.smooth(values, 3)
    np.testing.assert_array_equal(smoothed, [5.0, 1.0, 5.0, math.nan, 2.5, 2.5])
    assert curves.smooth(np.array([]), 5).size == 0
    np.testing.assert_array_equal(curves.smooth(np.full(4, 2.0), 3), np.full(4, 2.0))


def test_a_step_that_the_scaler_skipped_is_ordinary() -> None:
    def skip(record: StepRecord) -> StepRecord:
        if record.step != 2:
            return dataclasses.replace(record, loss_scale=1024.0)
        return dataclasses.replace(
            record, loss_scale=2048.0, step_skipped=True, finite_grads=False, grad_norm=math.inf
        )

    view = build_view(baseline={"edit": skip})
    assert curves.non_finite_steps(view.baseline) == []
    view = build_view(baseline={"edit": lambda r: dataclasses.replace(skip(r), loss_scale=None)})
    assert curves.non_finite_steps(view.baseline) == [2]
    assert curves.non_finite_steps(None) == []
