"""What the arms may cost, and which of them a budget leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.arms.price import STORED, PlannedArm, count_steps, planned_arms, rows_needed, wall_secs
from pilot.config import Config
from tests.trees import config_tree

SECS = 10.0  # of one whole arm; 100 steps each


def planned(parallel: int = 1, floor: bool = False, **sections: Any) -> tuple[PlannedArm, ...]:
    """The arms of the small configuration, clipped at 1.0, with sections changed."""
    config = Config.model_validate(config_tree(**{"optim": {"max_grad_norm": 1.0}, **sections}))
    return planned_arms(config, 100, SECS, parallel, floor)


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
    assert len(flown(planned(2, arms={"budget_secs": 30.0}))) == 5  # three pairs
    assert len(flown(planned(arms={"budget_device_hours": 30.0 / 3600}))) == 2
    assert len(flown(planned(pilot={"budget_secs": 30.0}))) == 2
    assert "arms.budget_secs = 30: about 40 s" in planned(arms={"budget_secs": 30.0})[2].left_out


def test_a_stored_floor_replaces_the_replicas() -> None:
    arms = planned(floor=True)
    assert [arm.left_out for arm in arms if arm.role == "replica"] == [STORED, STORED]
    assert len(flown(arms)) == 4


def test_without_a_timed_step_only_steps_limit() -> None:
    config = Config.model_validate(config_tree(arms={"budget_secs": 1.0}))
    arms = planned_arms(config, 100, None, 1)
    assert len(flown(arms)) == 6 and arms[0].secs is None
    assert wall_secs(None, 3, 2) is None and wall_secs(10.0, 3, 2) == 20.0


def test_the_hungriest_arm_decides_how_many_rows_are_drawn() -> None:
    change: dict[str, Any] = {"add": [{"batch.grad_accum_steps": 3}]}
    config = Config.model_validate(config_tree(arms=change))
    width = config.batch.micro_batch_size * config.batch.grad_accum_steps
    assert rows_needed(config, 10) == 10 * 3 * config.batch.micro_batch_size
    assert rows_needed(Config.model_validate(config_tree()), 10) == 10 * width
