"""The arms of a pilot: the baseline, and the recipe with exactly one variable changed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from pilot.config import Config
from pilot.folder import BASELINE, Job, PilotFolder, read_json
from pilot.jsonl import from_json, write_json, write_text
from pilot.mistakes import flat_keys
from pilot.plan import Plan
from pilot.records import Outcome

LOWER_RATE = "lr_x1_3"
_LOWER_RATE_VARIABLE = "optim.learning_rate"


def planned_jobs(
    folder: PilotFolder, config: Config, plan: Plan, module_path: str
) -> dict[str, Job]:
    """Write the folder of every planned arm (unless it is there) and return the jobs by name."""
    tree = yaml.safe_load(folder.config.read_text(encoding="utf-8"))
    lower = config.optim.learning_rate / 3.0
    changes = {
        BASELINE: ("", ""),
        LOWER_RATE: (_LOWER_RATE_VARIABLE, f"{lower:.6g}"),
    }
    jobs = {}
    for name, (variable, value) in changes.items():
        arm_tree = changed(tree, variable, lower) if variable else tree
        jobs[name] = _write(folder, name, variable, value, arm_tree, plan, module_path)
    return jobs


def needed(jobs: Mapping[str, Job], baseline: Outcome, say: Callable[[str], None]) -> list[Job]:
    """The arms worth running after this baseline; says which are left out, and why."""
    if baseline.status in (Outcome.EXCEPTION, Outcome.OUT_OF_MEMORY):
        say(f"no arm is run: the baseline ended with {baseline.status.replace('_', ' ')}")
        return []
    return [job for name, job in jobs.items() if name != BASELINE]


def changed(tree: Mapping[str, Any], key: str, value: object) -> dict[str, Any]:
    """A copy of ``tree`` in which exactly the leaf ``key`` (dotted) is ``value``.

    Raises:
        KeyError: there is no such leaf.
    """
    if key not in flat_keys(tree):
        raise KeyError(key)
    result: dict[str, Any] = copy.deepcopy(dict(tree))
    node = result
    *parents, leaf = key.split(".")
    for parent in parents:
        node = node[parent]
    node[leaf] = value
    return result


def _write(
    folder: PilotFolder,
    name: str,
    variable: str,
    value: str,
    tree: Mapping[str, Any],
    plan: Plan,
    module_path: str,
) -> Job:
    arm = folder.arm(name)
    if arm.job.is_file():
        return from_json(Job, read_json(arm.job))
    arm.root.mkdir(parents=True, exist_ok=True)
    job = Job(
        arm=name,
        role=BASELINE if name == BASELINE else "arm",
        variable=variable,
        value=value,
        start_step=plan.start_step,
        stop_step=plan.stop_step,
        cooldown_steps=plan.cooldown_steps,
        validations=plan.validations,
        checkpoints=plan.checkpoints if name == BASELINE else {},
        module_path=module_path,
    )
    write_text(arm.config, yaml.safe_dump(dict(tree), sort_keys=False, allow_unicode=True))
    write_json(arm.job, job)
    return job
