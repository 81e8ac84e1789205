"""From which step an arm can differ: what is not known counts as different."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from pilot.arms.forks import (
    NEVER_CLIPPED,
    SAME_CLIPPING,
    SAME_RATES,
    first_difference,
    why_identical,
)
from pilot.config import Config
from pilot.folder import Job
from pilot.records import StepRecord
from tests.factory_parts import make_step
from tests.trees import config_tree

NUM_ROWS = 800
CLIP = "optim.max_grad_norm"


def job(variable: str, value: str = "", **changes: Any) -> Job:
    """A job over steps 1 to 6 and a cool-down of 2."""
    plain = Job(
        arm="a", role="arm", variable=variable, value=value, start_step=0, stop_step=6,
        cooldown_steps=2, validations={}, checkpoints={}, module_path="",
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)


def config(**sections: Any) -> Config:
    """The small configuration with sections changed."""
    return Config.model_validate(config_tree(**sections))


def records(*norms: float) -> list[StepRecord]:
    """Step records with these gradient norms."""
    return [make_step(step, grad_norm=norm) for step, norm in enumerate(norms, start=1)]


def clip_step(limit: float | None, other: float | None, *norms: float) -> int | None:
    one, two = config(optim={"max_grad_norm": limit}), config(optim={"max_grad_norm": other})
    return first_difference(job(CLIP), one, two, records(*norms), NUM_ROWS)


@pytest.mark.parametrize(
    ("limit", "other", "norms", "expected"),
    [
        (1.0, None, (0.5, 0.9, 0.99), None),  # never clipped
        (1.0, None, (0.5, 1.5, 0.9), 2),
        (1.0, None, (0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 2.0), 8),  # in the cool-down
        (None, 1.0, (0.5, 1.0), 2),  # 1/(1 + 1e-6) is below 1
        (None, 1.0, (0.5, 0.5), None),
        (1.0, 2.0, (0.9, 1.5), 2),
        (1.0, 2.0, (0.9, 0.8), None),
        (2.0, 1.0, (0.9, 1.5), 2),
        (1.0, None, (0.5, math.nan), 2),
        (1.0, None, (0.5, math.inf), 2),
        (1.0, None, (), None),
        (12.969, None, (12.968998908996582,), 1),  # fp32 makes 0.99999994 of it
        (1.0, None, (1.0 - 1e-4,), None),
    ],
)
def test_clipping_differs_where_the_factor_does(
    limit: float | None, other: float | None, norms: tuple[float, ...], expected: int | None
) -> None:
    assert clip_step(limit, other, *norms) == expected


def test_rates_differ_from_the_first_step_with_another_rate() -> None:
    plain = config(full_run={"schedule_steps": 100, "warmup_steps": 3})
    tree = config_tree(full_run={"schedule_steps": 100, "warmup_steps": 3})
    third = Config.model_validate(
        {**tree, "optim": {**tree["optim"], "learning_rate": plain.optim.learning_rate / 3}}
    )
    # The first step of a warm-up has rate 0 for every peak.
    assert first_difference(job("optim.learning_rate"), plain, third, [], NUM_ROWS) == 2
    longer = config(full_run={"schedule_steps": 100, "warmup_steps": 4})
    assert first_difference(job("full_run.warmup_steps"), plain, longer, [], NUM_ROWS) == 2


def test_a_rate_inside_a_trainers_state_is_no_fork() -> None:
    """Optimizer and scheduler of a Trainer hold the rate: the baseline's state would restore it."""
    sections = {"engine": {"name": "transformers"}, "full_run": {"warmup_steps": 3}}
    plain, other = config(**sections), config(**sections, optim={"learning_rate": 0.01})
    assert first_difference(job("optim.learning_rate"), plain, other, [], NUM_ROWS) == 1
    longer = config(**{**sections, "full_run": {"warmup_steps": 4}})
    assert first_difference(job("full_run.warmup_steps"), plain, longer, [], NUM_ROWS) == 2


def test_a_late_change_of_the_schedule_is_no_change_in_the_pilot() -> None:
    run = {"schedule_steps": 100, "warmup_steps": 3, "schedule": "wsd"}
    plain, other = config(full_run=run), config(full_run={**run, "decay_frac": 0.2})
    late = job("full_run.decay_frac")
    assert first_difference(late, plain, other, [], NUM_ROWS) is None
    early = config(full_run={**run, "decay_frac": 0.97})
    assert first_difference(late, plain, early, [], NUM_ROWS) == 5  # the first below the peak


def test_whatever_else_changes_may_act_from_the_first_step() -> None:
    plain = config()
    for variable in (
        *("optim.weight_decay", "batch.micro_batch_size", "recipe.x", "precision"),
        "optim.learning_rate_floor",
    ):
        assert first_difference(job(variable), plain, plain, [], NUM_ROWS) == 1
    follower = job(CLIP, follows={"recipe.limit": "2.0"})
    assert first_difference(follower, plain, plain, records(0.1), NUM_ROWS) == 1


def test_the_words_for_an_identical_arm() -> None:
    clipped, free = config(optim={"max_grad_norm": 1.0}), config(optim={"max_grad_norm": None})
    assert why_identical(job(CLIP, "null"), clipped) == NEVER_CLIPPED
    assert why_identical(job(CLIP, "1.0"), free) == NEVER_CLIPPED
    assert why_identical(job(CLIP, "2.0"), clipped) == SAME_CLIPPING
    assert why_identical(job("full_run.decay_frac", "0.2"), clipped) == SAME_RATES
