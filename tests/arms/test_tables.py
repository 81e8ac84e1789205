"""The arms of a judged pilot as tables: margin, saved steps, statuses, sentences."""

from __future__ import annotations

import dataclasses
from typing import Any

from pilot.arms.ending import status_of
from pilot.arms.tables import arms_table, noise_table, saved_steps
from pilot.records import Outcome
from pilot.view import PilotView
from tests.factories import LOWER, build_view, with_arm


def with_rate(view: PilotView, scale: float, order: int, **changes: Any) -> PilotView:
    """The view with a copy of the lower arm at ``scale`` times the baseline's rate."""
    arm = view.arms[LOWER]
    rate = view.plan.schedule.learning_rate * scale
    name = f"lr_x{scale:g}"
    job = dataclasses.replace(
        arm.job, arm=name, title=f"lr x{scale:g}", value=repr(rate), order=order
    )
    new = dataclasses.replace(arm, job=job, **changes)
    return dataclasses.replace(view, arms={**view.arms, name: new})


def test_steps_that_were_not_trained_are_itemised() -> None:
    view = build_view()
    assert saved_steps(view) == []
    decided = Outcome(status=Outcome.DECIDED, last_step=20, step=20, message="worse")
    view = with_rate(view, 0.1, 2, outcome=decided, num_own_steps=20)
    same = Outcome(status=Outcome.IDENTICAL, last_step=0, message="never clipped: identical")
    view = with_rate(view, 3.0, 3, outcome=same, num_own_steps=0)
    assert saved_steps(view) == [
        {"arm": "lr x0.1", "num_steps": 36, "why": "decided at step 20: worse"},
        {"arm": "lr x3", "num_steps": 56, "why": "never clipped: identical"},
    ]


def test_the_status_of_an_arm_without_outcome() -> None:
    view = build_view()
    arm = dataclasses.replace(view.arms[LOWER], outcome=None)
    assert status_of(arm) == "lost"
    assert status_of(dataclasses.replace(arm, num_attempts=0)) == "not run"
    left = {"status": "not run", "reason": "arms.budget_steps = 1"}
    assert status_of(dataclasses.replace(arm, absence=left)) == "not run"
    view = with_arm(view, LOWER, outcome=None, absence=left, validations=(), steps=())
    row = arms_table(view)[1]
    assert (row["status"], row["reason"]) == ("not run", "arms.budget_steps = 1")
    assert "arms.budget_steps = 1" in row["sentence"] and row["words"] == "not compared"


def test_rows_are_in_the_order_of_the_plan() -> None:
    view = with_rate(with_rate(build_view(), 3.0, 9), 0.1, 5)
    assert [row["title"] for row in arms_table(view)] == [
        "baseline",
        "lr x1/3",
        "lr x0.1",
        "lr x3",
    ]


def test_without_replicas_the_noise_is_unknown() -> None:
    noise = noise_table(build_view())
    assert (noise["source"], noise["sd"]) == ("none", None)
    assert noise["sentence"].startswith("noise unknown")
