"""How an arm begins: from its own newest state, from a state of the baseline, or from step 1."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from pilot import checkpoint
from pilot.engines import early_end
from pilot.engines.arm import RunningArm, save_state, validate_at
from pilot.engines.fork_check import ForkRefused
from pilot.engines.workload import Workload
from pilot.errors import CheckpointDamaged, UsageError
from pilot.experiments import determinism, longest_sample
from pilot.folder import BASELINE, ArmFolder, Job, PilotFolder, read_json
from pilot.jsonl import read_jsonl, write_json
from pilot.plan import BEFORE
from pilot.records import Evidence, Resource, StepRecord, join_attempts
from pilot.restored import EXPERIMENT
from pilot.view import load_arm


def require_same_rows(job: Job, workload: Workload, folder: PilotFolder) -> None:
    """Row ids mean the same rows in every arm, and the rows hold what was surveyed.

    Raises:
        UsageError: names what differs.
    """
    survey, num_rows = read_json(folder.survey), workload.num_rows
    surveyed = survey["num_train_rows"]
    if num_rows != surveyed:
        words = ["a stream" if n is None else f"{n} training rows" for n in (num_rows, surveyed)]
        raise UsageError(
            f"arm {job.title}: {job.variable}={job.value} gives {words[0]}, the "
            f"pilot surveyed {words[1]}; rows cannot be paired\n"
            "    remedy: pilot the other data by itself"
        )
    if lines := workload.changed_data(survey.get("data") or ()):
        raise UsageError(
            f"arm {job.title}: the data are not those that the pilot surveyed:\n"
            + "".join(f"    {line}\n" for line in lines)
            + "    remedy: put them back and resume, or start a new pilot elsewhere; every build\n"
            "            must give the same rows (a shuffle or a split without a seed does not)"
        )


def take_up(arm: RunningArm, attempt: int, started: float, pilot_folder: PilotFolder) -> bool:
    """Resume or fork from the newest readable checkpoint; False: the arm begins with step 1.

    Comes before the engine's loop: the state says where that begins.
    """
    engine, recorder, fork = arm.engine, arm.recorder, arm.job.fork_step
    recorded = _last_recorded(arm.folder, attempt, fork or arm.job.start_step)
    newest = checkpoint.load_newest(arm.folder.checkpoints, at_most_step=recorded)
    if newest is None and fork is not None:
        newest = _forked_from(pilot_folder, fork)
    before = read_json(arm.folder.lineage) if arm.folder.lineage.is_file() else {}
    forked = newest[0].sha256 if newest and fork is not None and attempt == 1 else None
    lineage = {
        **{key: before[key] for key in ("fork_refused",) if key in before},
        "parent": None if arm.job.arm == BASELINE else BASELINE,
        "fork_step": fork,
        "fork_sha256": forked or before.get("fork_sha256"),
        "attempts": attempt,
        "resumed_from_step": newest[0].step if newest else None,
        "checkpoint_sha256": newest[0].sha256 if newest else None,
    }
    write_json(arm.folder.lineage, lineage)
    recorder.resource(Resource(kind="start", step=engine.step, secs=time.perf_counter() - started))
    if newest is None:
        return False
    engine.restore(newest[1])
    recorder.go_on(engine.step, _earlier(arm, attempt, pilot_folder))
    return True


def measure_start(arm: RunningArm, pilot_folder: PilotFolder) -> None:
    """Measure what belongs before the first step, validate, and keep the state."""
    engine, recorder = arm.engine, arm.recorder
    if engine.restored is not None:
        values = engine.restored.values()
        recorder.evidence(
            Evidence(experiment=EXPERIMENT, scale="full", step=engine.step, values=values)
        )
    if arm.job.arm == BASELINE:
        with np.load(pilot_folder.rows, allow_pickle=False) as table:
            lengths = table["num_tokens"]
        if len(lengths):  # of a stream nothing is known
            size = arm.config.batch.micro_batch_size
            evidence, resource = longest_sample.measure(engine, lengths, size)
            recorder.evidence(evidence)
            recorder.resource(resource)
        if rows := engine.rows_of(engine.step + 1):
            recorder.evidence(determinism.measure(engine, rows))
    recorder.evidence(early_end.start_state(engine, arm.start_weights))
    validate_at(arm, BEFORE)
    if "start" in arm.job.checkpoints:
        save_state(arm, ("start",))


def _forked_from(
    pilot_folder: PilotFolder, step: int
) -> tuple[checkpoint.Checkpoint, dict[str, Any]]:
    """The baseline's state after ``step`` steps.

    Raises:
        ForkRefused: it is gone or cannot be read; the arm begins at the start.
    """
    states = checkpoint.find(pilot_folder.arm(BASELINE).checkpoints)
    found = next((state for state in states if state.step == step), None)
    if found is None:
        raise ForkRefused(f"the baseline's state of step {step} is gone")
    try:
        return found, checkpoint.load(found)
    except CheckpointDamaged as error:
        raise ForkRefused(str(error)) from error


def _earlier(arm: RunningArm, attempt: int, pilot_folder: PilotFolder) -> list[StepRecord]:
    """The records of the arm's earlier attempts, after those of the baseline before the fork."""
    own = [arm.folder.steps(number) for number in range(1, attempt)]
    joined = join_attempts(read_jsonl(path, StepRecord) for path in own)
    if arm.job.fork_step is None:
        return joined
    baseline = load_arm(pilot_folder.arm(BASELINE).root).steps
    return [*(r for r in baseline if r.step <= arm.job.fork_step), *joined]


def _last_recorded(folder: ArmFolder, attempt: int, start_step: int) -> int:
    """The last step up to which no record is missing: a lost machine may have lost some."""
    paths = [folder.steps(number) for number in range(1, attempt)]
    last = start_step
    for record in join_attempts(read_jsonl(path, StepRecord) for path in paths):
        if record.step != last + 1:
            break
        last = record.step
    return last
