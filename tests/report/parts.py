"""Pilots with several arms, for what shows them."""

from __future__ import annotations

import dataclasses
from typing import Any

from pilot.folder import Job
from pilot.records import Outcome
from pilot.view import ArmView, PilotView
from tests.factories import LOWER, build_view, make_arm, make_order, with_arm

EVIL = "boom \x1b[31mred\x1b[0m \x1b]0;title\x07 [bold]x[/bold] \x00\u202e\udc80"
CLEAN_EVIL = "boom red  [bold]x[/bold] ?"
RATE, CLIP, SEED = "optim.learning_rate", "optim.max_grad_norm", "pilot.seed"


def make_job(arm: str = "lr_x3", **changes: Any) -> Job:
    """The job of an arm at another learning rate; every field can be changed."""
    job = build_view().arms[LOWER].job
    values = {"arm": arm, "title": arm.replace("_", " "), "value": "0.009"}
    return dataclasses.replace(job, **{"baseline_value": "0.003", **values, **changes})


def add_arm(
    view: PilotView, name: str, *, job: dict[str, Any] | None = None, **parts: Any
) -> PilotView:
    """The view with one more arm: ``job`` changes its job, ``parts`` go to ``make_arm``."""
    arm: ArmView = make_arm(view.plan, make_order(view.plan, view.rows), name=name, **parts)
    title = {"title": name.replace("_", " "), "order": len(view.arms)}
    changed = dataclasses.replace(arm.job, **{**title, **(job or {})})
    return dataclasses.replace(
        view, arms={**view.arms, name: dataclasses.replace(arm, job=changed)}
    )


def several_arms() -> PilotView:
    """The default arms: whole, decided early, diverged, identical, a replica and one not run."""
    view = build_view()
    view = with_arm(
        view, LOWER, job=dataclasses.replace(view.arms[LOWER].job, baseline_value="0.003")
    )
    never = Outcome(status=Outcome.IDENTICAL, last_step=0, message="never clipped: identical")
    early = Outcome(status=Outcome.DECIDED, last_step=20, message="worse")
    clip = {"variable": CLIP, "value": "null", "baseline_value": "1.0", "title": "clip off"}
    view = add_arm(view, "clip_off", job=clip, outcome=never)
    rate = {"variable": RATE, "baseline_value": "0.003"}
    lowest = {**rate, "value": "0.0003", "title": "lr x1/10"}
    view = add_arm(view, "lr_x1_10", job=lowest, last_step=20, outcome=early)
    view = add_arm(view, "lr_x3", job={**rate, "value": "0.009", "title": "lr x3"}, last_step=30)
    seed = {"variable": SEED, "value": "1000", "baseline_value": "0", "role": "replica"}
    view = add_arm(view, "replica_1", job=seed)
    view = add_arm(view, "replica_2", job=seed)
    left = {"status": "not run", "reason": "arms.budget_steps = 300: 336 steps with it"}
    empty: dict[str, Any] = {"steps": (), "cooldown": (), "validations": ()}
    empty |= {"resources": (), "num_own_steps": 0}
    view = with_arm(view, "clip_off", num_own_steps=0, resources=())
    return with_arm(view, "replica_2", outcome=None, num_attempts=0, absence=left, **empty)


def arm_row(name: str = "lr_x3", **changes: Any) -> dict[str, Any]:
    """One row of ``verdict["arms"]`` with an effect; every key can be changed."""
    effect = {"word": "worse", "value": 0.1664, "half_width": 0.0312, "level": 0.95}
    row: dict[str, Any] = {
        "name": name, "title": "lr x3", "role": "arm", "order": 1, "variable": RATE,
        "value": "0.009", "baseline_value": "0.003", "follows": {}, "status": "completed",
        "reason": "", "num_steps": 48, "num_own_steps": 56, "num_cooldown_steps": 8,
        "num_attempts": 1, "fork_step": None, "final_loss": 2.1,
        "difference": {"value": 0.1664, "se": 0.0037, "num_examples": 64},
        "effect": {**effect, "basis": "validation", "step": None},
        "words": "worse", "sentence": "lr x3: worse",
    }  # fmt: skip
    return {**row, **changes}


def effect(**changes: Any) -> dict[str, Any]:
    """The effect of ``arm_row`` with keys changed."""
    return {**arm_row()["effect"], **changes}
