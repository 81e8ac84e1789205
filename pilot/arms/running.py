"""Which arms run when: the baseline with its reference, the replicas, then the others.

Arms that are provably the baseline are not run, others start from its pinned states. A lost arm
costs only what needed it: the verdict says which gate that was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pilot import judge
from pilot.arms import jobs as arm_jobs
from pilot.arms.specs import REPLICA
from pilot.config import Config
from pilot.errors import ArmCrashed, ExitCode
from pilot.folder import BASELINE, Job, PilotFolder, read_json
from pilot.jsonl import from_json, write_json
from pilot.launchers import local
from pilot.plan import Plan
from pilot.records import Outcome
from pilot.view import load

_ENDED_BADLY = (Outcome.EXCEPTION, Outcome.OUT_OF_MEMORY)
NOT_NEEDED = "arms.when=if_not_go, and the verdict is GO without it"


@dataclass(frozen=True)
class Runs:
    """A planned pilot that is about to run its arms."""

    folder: PilotFolder
    config: Config
    plan: Plan
    jobs: Mapping[str, Job]
    setting: local.Setting


def run_all(runs: Runs, refuse_changes: Callable[[PilotFolder, Config], None]) -> None:
    """Run the baseline and every arm that is needed; finished ones are not run again.

    Args:
        runs: the pilot.
        refuse_changes: raises when recipe, data or code changed since the plan.

    Raises:
        PilotError: the baseline has no outcome; or the disk is full.
    """
    wanted = [job for job in runs.jobs.values() if _is_wanted(runs, job)]
    reference = [job for job in wanted if _is_reference(runs, job)]
    beside = reference if runs.setting.at_once > 1 else []
    _run(runs, [runs.jobs[BASELINE], *beside], refuse_changes)
    baseline = from_json(Outcome, read_json(runs.folder.arm(BASELINE).outcome))
    others = [job for job in wanted if job.arm != BASELINE and job not in beside]
    if baseline.status in _ENDED_BADLY:
        _leave_out(runs, [*beside, *others], _no_arms(baseline))
        return
    if runs.config.arms.when == "if_not_go":
        _run(runs, [job for job in reference if job not in beside], refuse_changes)
        others = [job for job in others if job not in reference]
        if not _others_are_needed(runs):
            _leave_out(runs, others, NOT_NEEDED)
            return
    others = arm_jobs.settle_identical(runs.folder, others, runs.config)
    _say_identical(runs, wanted)
    # Replicas first: whether another arm's difference is decided depends on the noise floor.
    _run(runs, [job for job in others if job.role == REPLICA], refuse_changes)
    _run(runs, [job for job in others if job.role != REPLICA], refuse_changes)


def _others_are_needed(runs: Runs) -> bool:
    """Whether the baseline and its reference are not GO alone; kept, so that a resume agrees."""
    path = runs.folder.others_needed
    if not path.is_file():
        judgement = judge.judge(load(runs.folder.root), runs.config.gates)
        write_json(path, {"needed": judgement.exit_code != ExitCode.GO})
    return bool(read_json(path)["needed"])


def _is_wanted(runs: Runs, job: Job) -> bool:
    """Lost arms are tried again, arms that are not to be run are not."""
    path = runs.folder.arm(job.arm).absence
    return not path.is_file() or read_json(path)["status"] != arm_jobs.NOT_RUN


def _is_reference(runs: Runs, job: Job) -> bool:
    return any(arm.name == job.arm and arm.is_reference for arm in runs.plan.arms)


def _no_arms(baseline: Outcome) -> str:
    return f"the baseline ended with {baseline.status.replace('_', ' ')}"


def _run(
    runs: Runs, jobs: Sequence[Job], refuse_changes: Callable[[PilotFolder, Config], None]
) -> None:
    """Run those that have no outcome; the baseline's failure is the pilot's, an arm's its own."""
    folder = runs.folder
    missing = [job for job in jobs if not folder.arm(job.arm).outcome.is_file()]
    if not missing:
        return
    refuse_changes(folder, runs.config)
    names = [job.arm for job in missing]

    def on_end(job: Job, end: local.End) -> Collection[str]:
        if job.arm == BASELINE and (not isinstance(end, Outcome) or end.status in _ENDED_BADLY):
            return names
        if not isinstance(end, Outcome):
            reason = end.reason if isinstance(end, ArmCrashed) else str(end)
            arm_jobs.say_absent(folder.arm(job.arm), arm_jobs.LOST, reason)
            runs.setting.terminal.arm_not_run(job, f"lost: {reason.splitlines()[0]}")
        return ()

    ends = local.run_arms([(job, folder.arm(job.arm)) for job in missing], runs.setting, on_end)
    refuse_changes(folder, runs.config)
    failure = ends.get(BASELINE)
    if failure is not None and not isinstance(failure, Outcome):
        raise failure


def _leave_out(runs: Runs, jobs: Sequence[Job], reason: str) -> None:
    for job in jobs:
        arm = runs.folder.arm(job.arm)
        if not arm.outcome.is_file():
            arm_jobs.say_absent(arm, arm_jobs.NOT_RUN, reason)
            runs.setting.terminal.arm_not_run(job, reason)


def _say_identical(runs: Runs, jobs: Sequence[Job]) -> None:
    for job in jobs:
        path = runs.folder.arm(job.arm).outcome
        outcome = from_json(Outcome, read_json(path)) if path.is_file() else None
        if outcome is not None and outcome.status == Outcome.IDENTICAL and job.role != REPLICA:
            runs.setting.terminal.arm_not_run(job, outcome.message)
