"""The folders of the arms: what each has to do, and from which state of the baseline it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from pilot import checkpoint
from pilot.arms import forks
from pilot.arms.keys import is_unread
from pilot.arms.one_variable import change_leaf
from pilot.arms.price import PlannedArm
from pilot.arms.specs import REPLICA, find_spec
from pilot.config import Config, validate
from pilot.data.known import num_rows
from pilot.folder import BASELINE, ArmFolder, Job, PilotFolder, count_attempts, read_json
from pilot.jsonl import from_json, write_json, write_text
from pilot.plan import Plan, baseline_job
from pilot.records import Outcome
from pilot.schedule import full_schedule
from pilot.view import load_arm

LOST, NOT_RUN = "lost", "not run"


def planned_jobs(
    folder: PilotFolder, config: Config, plan: Plan, module_path: str
) -> dict[str, Job]:
    """Write the folder of every planned arm (unless it is there) and return the jobs by name.

    An arm that is left out gets a folder as well: it says why.

    Raises:
        UsageError: an arm would change more, or less, than one leaf of the configuration.
    """
    jobs = {BASELINE: _baseline(folder, plan, module_path)}
    for order, planned in enumerate(plan.arms, start=1):
        job = _arm(folder, config, plan, module_path, planned, order)
        jobs[job.arm] = job
    return jobs


def settle_identical(folder: PilotFolder, jobs: Sequence[Job], config: Config) -> list[Job]:
    """After the baseline: arms that provably equal it get that outcome, others their fork.

    Returns the jobs that are still to be run. An arm that has begun keeps its start.
    """
    baseline = load_arm(folder.arm(BASELINE).root)
    whole = baseline.outcome is not None and baseline.outcome.status == Outcome.COMPLETED
    records = (*baseline.steps, *baseline.cooldown)
    rows = num_rows(read_json(folder.survey))
    left = []
    for job in jobs:
        arm = folder.arm(job.arm)
        if arm.outcome.is_file():
            continue
        if count_attempts(arm) or job.role == REPLICA:
            left.append(job)
            continue
        own = validate(yaml.safe_load(arm.config.read_text(encoding="utf-8")))
        step = forks.first_difference(job, config, own, records, rows)
        if step is None and whole:
            why = forks.why_identical(job, config)
            _say_identical(arm, job.start_step, why)
            continue
        left.append(_forked(folder, job, step))
    return left


def say_absent(arm: ArmFolder, status: str, reason: str) -> None:
    """Leave on disk why an arm has no outcome."""
    first_line = reason.strip().split("\n", 1)[0]
    write_json(arm.absence, {"status": status, "reason": first_line})


def _forked(folder: PilotFolder, job: Job, step: int | None) -> Job:
    """The job with its first step that may differ, and the newest state from before it.

    ``step`` None: it would be identical, but for the baseline that did not come to its end.
    """
    states = checkpoint.find(folder.arm(BASELINE).checkpoints)
    usable = [c.step for c in states if job.start_step < c.step and (step is None or c.step < step)]
    job = replace(job, first_difference_step=step, fork_step=max(usable, default=None))
    write_json(folder.arm(job.arm).job, job)
    return job


def _baseline(folder: PilotFolder, plan: Plan, module_path: str) -> Job:
    arm = folder.arm(BASELINE)
    if arm.job.is_file():
        return from_json(Job, read_json(arm.job))
    job = baseline_job(plan, module_path)
    arm.root.mkdir(parents=True, exist_ok=True)
    write_text(arm.config, folder.config.read_text(encoding="utf-8"))
    write_json(arm.job, job)
    return job


def _arm(
    folder: PilotFolder,
    config: Config,
    plan: Plan,
    module_path: str,
    planned: PlannedArm,
    order: int,
) -> Job:
    arm = folder.arm(planned.name)
    if arm.job.is_file():
        return from_json(Job, read_json(arm.job))
    spec = find_spec(config, planned.name)
    changed = change_leaf(
        folder.unresolved.read_text(encoding="utf-8"),
        spec.variable,
        spec.value,
        resolved=yaml.safe_load(folder.config.read_text(encoding="utf-8")),
    )
    job = replace(
        baseline_job(plan, module_path),
        arm=planned.name,
        role=planned.role,
        variable=planned.variable,
        value=planned.value,
        checkpoints={},
        title=planned.title,
        order=order,
        baseline_value=planned.baseline_value,
        follows=changed.follows,
        may_end_early=_may_end_early(config, planned),
    )
    arm.root.mkdir(parents=True, exist_ok=True)
    write_text(arm.config, yaml.safe_dump(changed.tree, sort_keys=False, allow_unicode=True))
    too_short = _ends_too_soon(folder, changed.tree, plan)
    if spec.no_influence and all(map(is_unread, changed.follows)):
        _say_identical(arm, plan.start_step, spec.no_influence)
    elif reason := ("" if spec.no_influence else planned.left_out) or too_short:
        say_absent(arm, NOT_RUN, reason)
    write_json(arm.job, job)
    return job


def _say_identical(arm: ArmFolder, step: int, why: str) -> None:
    write_json(arm.outcome, Outcome(status=Outcome.IDENTICAL, last_step=step, message=why))


def _ends_too_soon(folder: PilotFolder, tree: Mapping[str, Any], plan: Plan) -> str:
    """Why an arm's own full run is too short for the pilot's steps; empty when it is not."""
    own = full_schedule(validate(tree), num_rows(read_json(folder.survey)))
    if own.schedule_steps >= plan.stop_step:
        return ""
    return f"its full run ends at step {own.schedule_steps}, the pilot at {plan.stop_step}"


def _may_end_early(config: Config, planned: PlannedArm) -> bool:
    """Not the reference (a gate needs its end) and not a replica (the noise floor does)."""
    return config.arms.end_early and not planned.is_reference and planned.role != REPLICA
