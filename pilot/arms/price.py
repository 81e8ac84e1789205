"""What the arms of a pilot may cost, and which of them a budget leaves out. Pure.

Steps are upper bounds: an arm that is identical to the baseline is not run, one that is decided or
has lost ends early.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pilot.arms.specs import REPLICA, arm_specs, value_at, value_text
from pilot.config import Config

STORED = "a stored noise floor replaces it"


@dataclass(frozen=True, kw_only=True)
class PlannedArm:
    """One arm of the plan; ``left_out`` is the reason why it will not be run, or empty.

    ``num_steps`` counts its cool-down; ``secs`` is None where the survey could not time a step.
    ``value`` and ``baseline_value`` are YAML text.
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


def planned_arms(
    config: Config,
    num_steps: int,
    secs: float | None,
    num_parallel: int,
    has_noise_floor: bool = False,
) -> tuple[PlannedArm, ...]:
    """The arms in their order of priority; a budget leaves out the last ones.

    Args:
        config: the validated configuration.
        num_steps: steps of one whole arm, its cool-down included.
        secs: expected seconds of one whole arm, or None.
        num_parallel: arms that run at the same time.
        has_noise_floor: a stored one replaces the replicas.
    """
    plain = config.model_dump(by_alias=True)
    planned: list[PlannedArm] = []
    runs = 1  # the baseline
    for spec in arm_specs(config):
        stored = STORED if has_noise_floor and spec.role == REPLICA else ""
        reason = (
            spec.no_influence
            or stored
            or _over_budget(config, runs + 1, num_steps, secs, num_parallel)
        )
        runs += 0 if reason else 1
        planned.append(
            PlannedArm(
                name=spec.name,
                title=spec.title,
                role=spec.role,
                variable=spec.variable,
                value=value_text(spec.value),
                baseline_value=value_text(value_at(plain, spec.variable)),
                num_steps=num_steps,
                secs=secs,
                is_reference=spec.is_reference,
                left_out=reason,
            )
        )
    return tuple(planned)


def wall_secs(secs: float | None, num_runs: int, num_parallel: int) -> float | None:
    """Seconds until ``num_runs`` arms of ``secs`` each are done, ``num_parallel`` at a time."""
    return None if secs is None else secs * math.ceil(num_runs / num_parallel)


def rows_needed(config: Config, num_steps: int) -> int:
    """Rows that the hungriest arm draws in ``num_steps`` steps."""
    batch = config.batch
    widths = [batch.micro_batch_size * batch.grad_accum_steps]
    for spec in arm_specs(config):
        if spec.variable == "batch.micro_batch_size":
            widths.append(int(spec.value) * batch.grad_accum_steps)
        elif spec.variable == "batch.grad_accum_steps":
            widths.append(batch.micro_batch_size * int(spec.value))
    return num_steps * max(widths)


def count_steps(arms: Sequence[PlannedArm]) -> int:
    """Steps of all planned arms, the baseline not counted."""
    return sum(arm.num_steps for arm in arms if not arm.left_out)


def _over_budget(
    config: Config, runs: int, num_steps: int, secs: float | None, num_parallel: int
) -> str:
    """Why ``runs`` runs, the baseline included, are too many; empty when they are not."""
    arms = config.arms
    if arms.budget_steps is not None and runs * num_steps > arms.budget_steps:
        return f"arms.budget_steps = {arms.budget_steps}: {runs * num_steps} steps with it"
    wall = wall_secs(secs, runs, num_parallel)
    if wall is None or secs is None:
        return ""
    for key, limit in (
        ("arms.budget_secs", arms.budget_secs),
        ("pilot.budget_secs", config.pilot.budget_secs),
    ):
        if limit is not None and wall > limit:
            return f"{key} = {limit:g}: about {wall:.0f} s with it"
    hours = arms.budget_device_hours
    # Arms that share a CPU share one device: the machine is busy for the wall time.
    if hours is not None and wall / 3600.0 > hours:
        return f"arms.budget_device_hours = {hours:g}: about {wall / 3600.0:.3g} h with it"
    return ""
