"""What the arms of a pilot may cost, and which of them a budget leaves out. Pure.

Steps are upper bounds: an arm that is identical to the baseline is not run, one that is decided or
has lost ends early.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pilot.arms.specs import (
    ABSENT,
    ADDED,
    REPLICA,
    ArmSpec,
    arm_specs,
    node_at,
    value_text,
)
from pilot.config import Config
from pilot.schedule import full_schedule

STORED = "a stored noise floor replaces it"
ABSENT_TEXT = "absent"  # in the place of the value of a key that the recipe does not have


@dataclass(frozen=True, kw_only=True)
class PlannedArm:
    """One arm of the plan; ``left_out`` is the reason why it will not be run, or empty.

    ``num_steps`` counts its cool-down; ``secs`` is None where the survey could not time a step.
    ``value`` and ``baseline_value`` are YAML text; ``absent`` where the recipe has no such key.
    """

    name: str
    title: str
    role: str
    variable: str
    value: str
    baseline_value: str
    num_steps: int
    secs: float | None
    is_reference: bool = False
    left_out: str = ""


@dataclass(frozen=True, kw_only=True)
class WholeArm:
    """What one whole arm takes, and what decides whether it can be run at all.

    ``num_steps`` counts its cool-down; ``secs`` is None where the survey could not time a step.
    ``stop_step`` is the last step before the cool-down, ``num_rows`` counts the training rows.
    ``num_devices`` are those that one arm keeps busy.
    """

    num_steps: int
    secs: float | None
    stop_step: int
    num_rows: int
    num_devices: int = 1


def planned_arms(
    config: Config, whole: WholeArm, num_parallel: int, has_noise_floor: bool = False
) -> tuple[PlannedArm, ...]:
    """The arms in their order of priority; a budget leaves out the last ones.

    Args:
        config: the validated configuration.
        whole: what one whole arm takes.
        num_parallel: arms that run at the same time.
        has_noise_floor: a stored one replaces the replicas of ``arms.num_replicas``; a seed that
            is asked for by itself is run.
    """
    plain = config.model_dump(by_alias=True)
    planned: list[PlannedArm] = []
    for spec in arm_specs(config):
        own = node_at(plain, spec.variable)
        arm = PlannedArm(
            name=spec.name,
            title=spec.title,
            role=spec.role,
            variable=spec.variable,
            value=value_text(spec.value),
            baseline_value=ABSENT_TEXT if own is ABSENT else value_text(own),
            num_steps=whole.num_steps,
            secs=whole.secs,
            is_reference=spec.is_reference,
        )
        is_stored = has_noise_floor and spec.role == REPLICA and spec.source != ADDED
        reason = (
            spec.no_influence
            or (STORED if is_stored else "")
            or _ends_too_soon(config, spec, whole)
            or _over_budget(config, [*planned, arm], whole, num_parallel)
        )
        planned.append(replace(arm, left_out=reason))
    return tuple(planned)


def wall_secs(secs: float | None, arms: Sequence[PlannedArm], num_parallel: int) -> float | None:
    """Seconds until the baseline and the planned ``arms``, of ``secs`` each, are done.

    They run in phases, ``num_parallel`` at a time, as in ``pilot/arms/running.py``: the baseline
    with its reference, the replicas, the others. One phase begins when the one before has ended.
    """
    if secs is None:
        return None
    run = [arm for arm in arms if not arm.left_out]
    first = 1 + sum(arm.is_reference for arm in run)
    replicas = sum(arm.role == REPLICA for arm in run)
    others = 1 + len(run) - first - replicas
    return secs * sum(math.ceil(count / num_parallel) for count in (first, replicas, others))


def reference_only(arms: Sequence[PlannedArm]) -> tuple[PlannedArm, ...]:
    """The arm that a verdict needs beside the baseline, even where a budget left it out."""
    return tuple(replace(arm, left_out="") for arm in arms if arm.is_reference)


def rows_needed(config: Config, num_steps: int) -> int:
    """Rows that the hungriest arm draws in ``num_steps`` steps."""
    batch = config.batch
    widths = [batch.micro_batch_size * batch.grad_accum_steps]  # of each process
    for spec in arm_specs(config):
        if spec.variable == "batch.micro_batch_size":
            widths.append(int(spec.value) * batch.grad_accum_steps)
        elif spec.variable == "batch.grad_accum_steps":
            widths.append(batch.micro_batch_size * int(spec.value))
    return num_steps * max(widths) * config.launcher.num_processes


def count_steps(arms: Sequence[PlannedArm]) -> int:
    """Steps of all planned arms, the baseline not counted."""
    return sum(arm.num_steps for arm in arms if not arm.left_out)


def _ends_too_soon(config: Config, spec: ArmSpec, whole: WholeArm) -> str:
    """Why an arm's own full run is too short for the pilot's steps; empty when it is not.

    Only keys of ``full_run`` and ``batch`` are looked at: the others set no length by themselves.
    """
    section, _, name = spec.variable.partition(".")
    if section not in ("full_run", "batch"):
        return ""
    part = getattr(config, section).model_copy(update={name: spec.value})
    own = full_schedule(config.model_copy(update={section: part}), whole.num_rows)
    if own.schedule_steps >= whole.stop_step:
        return ""
    return f"its full run ends at step {own.schedule_steps}, the pilot at {whole.stop_step}"


def _over_budget(
    config: Config, arms: Sequence[PlannedArm], whole: WholeArm, num_parallel: int
) -> str:
    """Why ``arms`` and the baseline are too much; empty when they are not."""
    budget = config.arms
    steps = whole.num_steps + count_steps(arms)
    if budget.budget_steps is not None and steps > budget.budget_steps:
        return f"arms.budget_steps = {budget.budget_steps}: {steps} steps with it"
    wall = wall_secs(whole.secs, arms, num_parallel)
    if wall is None:
        return ""
    for key, limit in (
        ("arms.budget_secs", budget.budget_secs),
        ("pilot.budget_secs", config.pilot.budget_secs),
    ):
        if limit is not None and wall > limit:
            return f"{key} = {limit:g}: about {wall:.0f} s with it"
    hours = budget.budget_device_hours
    # Arms that share a CPU share one device: the machine is busy for the wall time.
    needed = wall / 3600.0 * whole.num_devices
    if hours is not None and needed > hours:
        return f"arms.budget_device_hours = {hours:g}: about {needed:.3g} h with it"
    return ""
