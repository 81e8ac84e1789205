"""What the arms may cost, and which of them a budget leaves out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pilot.arms.price import (
    STORED,
    PlannedArm,
    WholeArm,
    count_steps,
    planned_arms,
    reference_only,
    rows_needed,
    wall_secs,
)
from pilot.config import Config
from tests.trees import config_tree

SECS = 10.0  # of one whole arm; 100 steps each
WHOLE = WholeArm(num_steps=100, secs=SECS, stop_step=90, num_rows=800)


def planned(parallel: int = 1, floor: bool = False, **sections: Any) -> tuple[PlannedArm, ...]:
    """The arms of the small configuration, clipped at 1.0, with sections changed."""
    config = Config.model_validate(config_tree(**{"optim": {"max_grad_norm": 1.0}, **sections}))
    return planned_arms(config, WHOLE, parallel, floor)


def flown(arms: tuple[PlannedArm, ...]) -> list[str]:
    """Titles of the arms that are not left out."""
    return [arm.title for arm in arms if not arm.left_out]


def test_the_default_arms_by_priority() -> None:
    arms = planned()
    assert flown(arms) == ["lr x1/3", "clip off", "lr x1/10", "lr x3", "replica 1", "replica 2"]
    assert [arm.is_reference for arm in arms] == [True] + 5 * [False]
    assert (arms[1].variable, arms[1].value, arms[1].baseline_value) == (
        "optim.max_grad_norm", "null", "1.0"
    )  # fmt: skip
    assert count_steps(arms) == 600


@pytest.mark.parametrize(
    ("budget", "count"), [(1000, 6), (700, 6), (699, 5), (300, 2), (200, 1), (100, 0), (1, 0)]
)
def test_a_budget_in_steps_leaves_out_the_last(budget: int, count: int) -> None:
    arms = planned(arms={"budget_steps": budget})
    assert len(flown(arms)) == count
    assert flown(arms) == flown(planned())[:count]
    assert count_steps(arms) == 100 * count
    if count < 6:
        assert f"arms.budget_steps = {budget}: {100 * (count + 2)} steps" in arms[count].left_out


def test_budgets_in_time_count_the_arms_side_by_side() -> None:
    assert len(flown(planned(arms={"budget_secs": 30.0}))) == 2  # with the baseline three
    # Two at a time: the baseline and the reference, then two others, then one.
    assert len(flown(planned(2, arms={"budget_secs": 30.0}))) == 4
    assert len(flown(planned(2, arms={"budget_secs": 40.0}))) == 6  # and both replicas
    assert len(flown(planned(arms={"budget_device_hours": 30.0 / 3600}))) == 2
    assert len(flown(planned(pilot={"budget_secs": 30.0}))) == 2
    assert "arms.budget_secs = 30: about 40 s" in planned(arms={"budget_secs": 30.0})[2].left_out


def test_a_stored_floor_replaces_the_replicas() -> None:
    arms = planned(floor=True)
    assert [arm.left_out for arm in arms if arm.role == "replica"] == [STORED, STORED]
    assert len(flown(arms)) == 4


def test_a_seed_that_is_asked_for_is_run_beside_a_stored_floor() -> None:
    arms = planned(floor=True, arms={"add": [{"pilot.seed": 7}]})
    assert [(a.title, a.left_out) for a in arms if a.role == "replica"] == [
        ("seed 7", ""),
        ("replica 1", STORED),
        ("replica 2", STORED),
    ]


@pytest.mark.parametrize(
    ("change", "left_out"),
    [
        ({"full_run.schedule_steps": 89}, "its full run ends at step 89, the pilot at 90"),
        ({"full_run.schedule_steps": 90}, ""),
        ({"full_run.warmup_steps": 90}, ""),
        ({"recipe.width": 1}, ""),
    ],
)
def test_an_arm_whose_own_run_is_too_short_is_not_priced(
    change: dict[str, Any], left_out: str
) -> None:
    arms = planned(arms={"add": [change], "budget_steps": 700})
    (arm,) = [arm for arm in arms if arm.variable in change]
    assert arm.left_out == left_out
    # Its place in the budget goes to a later arm.
    assert (arms[-1].left_out == "") is bool(left_out)


def test_epochs_of_a_larger_batch_are_fewer_steps() -> None:
    run = {"schedule_steps": None, "epochs": 1.0}  # 100 steps of 8 rows
    add = [{"batch.micro_batch_size": 9}, {"batch.grad_accum_steps": 8}, {"full_run.epochs": 0.5}]
    arms = [arm for arm in planned(full_run=run, arms={"add": add}) if arm.left_out]
    assert [arm.left_out for arm in arms] == [
        "its full run ends at step 89, the pilot at 90",
        "its full run ends at step 13, the pilot at 90",
        "its full run ends at step 50, the pilot at 90",
    ]


def test_without_a_timed_step_only_steps_limit() -> None:
    config = Config.model_validate(config_tree(arms={"budget_secs": 1.0}))
    arms = planned_arms(config, replace(WHOLE, secs=None), 1)
    assert len(flown(arms)) == 6 and arms[0].secs is None
    assert wall_secs(None, arms, 2) is None


@pytest.mark.parametrize(
    ("parallel", "phases"), [(1, 1 + 1 + 2 + 3), (2, 1 + 1 + 2), (3, 3), (7, 3)]
)
def test_a_pilot_runs_in_phases(parallel: int, phases: int) -> None:
    assert wall_secs(SECS, planned(), parallel) == SECS * phases


def test_phases_without_arms_take_no_time() -> None:
    assert wall_secs(SECS, (), 4) == SECS
    assert wall_secs(SECS, reference_only(planned()), 4) == SECS
    assert wall_secs(SECS, reference_only(planned(arms={"budget_steps": 1})), 1) == 2 * SECS
    assert wall_secs(SECS, planned(arms={"budget_steps": 1}), 1) == SECS


def test_a_key_that_the_recipe_does_not_have_is_absent() -> None:
    (arm,) = [arm for arm in planned(arms={"add": [{"recipe.noise": None}]}) if "noise" in arm.name]
    assert (arm.value, arm.baseline_value) == ("null", "absent")


def test_the_hungriest_arm_decides_how_many_rows_are_drawn() -> None:
    change: dict[str, Any] = {"add": [{"batch.grad_accum_steps": 3}]}
    config = Config.model_validate(config_tree(arms=change))
    width = config.batch.micro_batch_size * config.batch.grad_accum_steps
    assert rows_needed(config, 10) == 10 * 3 * config.batch.micro_batch_size
    assert rows_needed(Config.model_validate(config_tree()), 10) == 10 * width
