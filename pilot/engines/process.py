"""The process of one arm: ``python -m pilot arm DIR``.

It starts or resumes, trains to the job's last step, branches into the cool-down, and writes its
completion marker. Whatever the recipe's code raises becomes an outcome; only pilot's own faults
leave the folder without a marker.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from pilot import checkpoint
from pilot.config import Config, validate
from pilot.engines import PARENT_PID, early_end
from pilot.engines.native import NativeEngine
from pilot.engines.recorder import Recorder
from pilot.entry import run_guarded
from pilot.errors import CheckpointDamaged, RecipeFailure, UsageError
from pilot.experiments import determinism, longest_sample, movement
from pilot.folder import BASELINE, ArmFolder, Job, PilotFolder, count_attempts, read_json
from pilot.jsonl import from_json, read_jsonl, write_json
from pilot.locks import hold
from pilot.memory import memory_limit_bytes, peak_memory_bytes, reset_peak
from pilot.plan import BEFORE, COOLDOWN_END, Plan, cooldown_rate, full_schedule, read_plan
from pilot.recipe import RecipeHandle
from pilot.records import Outcome, Resource, StepRecord, join_attempts
from pilot.schedule import Schedule
from pilot.tracking.hide import hide_message

_KEEP_NEWEST = 2
# An arm whose parent was killed ends at its next step; a resumed pilot waits that long for it.
_LOCK_WAIT_SECS = 120.0


@dataclass(frozen=True, kw_only=True)
class _Arm:
    folder: ArmFolder
    job: Job
    config: Config
    schedule: Schedule
    plan: Plan
    engine: NativeEngine
    recorder: Recorder
    start_weights: Mapping[str, torch.Tensor]


def run_arm(root: Path) -> int:
    """Run the arm in ``root`` to its end; returns 0 when it has an outcome (of any kind)."""
    folder = ArmFolder(root)
    return run_guarded(lambda: _run(folder), folder.error)


def _run(folder: ArmFolder) -> int:
    job = from_json(Job, read_json(folder.job))
    config = validate(yaml.safe_load(folder.config.read_text(encoding="utf-8")))
    threads = read_plan(read_json(PilotFolder(folder.root.parent.parent).plan)).num_threads
    if threads:
        torch.set_num_threads(threads)
    with hold(folder.root / "arm.lock", "another process runs this arm", wait_secs=_LOCK_WAIT_SECS):
        attempt = count_attempts(folder) + 1
        recorder = Recorder(folder, attempt, pins_first_clip=job.arm == BASELINE)
        try:
            outcome = _attempt(folder, job, config, recorder, attempt)
        finally:
            recorder.close()
        write_json(folder.outcome, outcome)
    return 0


def _attempt(
    folder: ArmFolder, job: Job, config: Config, recorder: Recorder, attempt: int
) -> Outcome:
    engine: NativeEngine | None = None
    try:
        started = time.perf_counter()
        handle = RecipeHandle(
            module_path=Path(job.module_path),
            settings=config.recipe,
            sequence_length=config.batch.sequence_length,
            seed=config.pilot.seed,
        )
        pilot_folder = PilotFolder(folder.root.parent.parent)
        order = np.load(pilot_folder.order, allow_pickle=False)
        recipe = handle.build()
        _require_same_rows(job, len(recipe.train), pilot_folder)
        engine = NativeEngine(
            recipe,
            config,
            order=order,
            first_step=job.start_step + 1,
            observer=recorder,
            attempt=attempt,
        )
        arm = _Arm(
            folder=folder,
            job=job,
            config=config,
            schedule=full_schedule(config, len(engine.recipe.train)),
            plan=read_plan(read_json(pilot_folder.plan)),
            engine=engine,
            recorder=recorder,
            start_weights=movement.start_weights(engine),
        )
        _begin(arm, attempt, started, pilot_folder)
        return _train(arm)
    except RecipeFailure as failure:
        if engine is not None:
            with contextlib.suppress(RuntimeError):  # a GPU after an assertion answers nothing
                engine.flush()
        recorder.on_exception(failure)
        return _failed(failure, recorder.last_step, engine)


def _require_same_rows(job: Job, num_rows: int, folder: PilotFolder) -> None:
    """Row ids mean the same rows in every arm."""
    surveyed = int(read_json(folder.survey)["num_train_rows"])
    if num_rows != surveyed:
        raise UsageError(
            f"arm {job.title}: {job.variable}={job.value} gives {num_rows} training rows, the "
            f"pilot surveyed {surveyed}; rows cannot be paired\n"
            "    remedy: pilot the other data by itself"
        )


def _begin(arm: _Arm, attempt: int, started: float, pilot_folder: PilotFolder) -> None:
    """Resume or fork from the newest readable checkpoint, or measure what belongs before step 1."""
    engine, recorder, fork = arm.engine, arm.recorder, arm.job.fork_step
    recorded = _last_recorded(arm.folder, attempt, fork or arm.job.start_step)
    newest = checkpoint.load_newest(arm.folder.checkpoints, at_most_step=recorded)
    if newest is None and fork is not None:
        newest = _forked_from(pilot_folder, fork)
    lineage = {
        "parent": None if arm.job.arm == BASELINE else BASELINE,
        "fork_step": fork,
        "attempts": attempt,
        "resumed_from_step": newest[0].step if newest else None,
        "checkpoint_sha256": newest[0].sha256 if newest else None,
    }
    write_json(arm.folder.lineage, lineage)
    recorder.resource(Resource(kind="start", step=engine.step, secs=time.perf_counter() - started))
    if newest is not None:
        engine.restore(newest[1])
        recorder.last_step = engine.step
        return
    if arm.job.arm == BASELINE:
        rows = tuple(int(i) for i in engine.order[: arm.plan.rows_per_step])
        with np.load(pilot_folder.rows, allow_pickle=False) as table:
            evidence, resource = longest_sample.measure(engine, table["num_tokens"])
        recorder.evidence(evidence)
        recorder.resource(resource)
        recorder.evidence(determinism.measure(engine, rows))
    recorder.evidence(early_end.start_state(engine, arm.start_weights))
    _validate(arm, BEFORE)
    if "start" in arm.job.checkpoints:
        _save(arm, ("start",))


def _forked_from(
    pilot_folder: PilotFolder, step: int
) -> tuple[checkpoint.Checkpoint, dict[str, Any]]:
    """The baseline's state after ``step`` steps.

    Raises:
        CheckpointDamaged: it cannot be read; the arm is lost, the baseline is not touched.
    """
    states = checkpoint.find(pilot_folder.arm(BASELINE).checkpoints)
    found = next((state for state in states if state.step == step), None)
    if found is None:
        raise CheckpointDamaged(pilot_folder.arm(BASELINE).checkpoints, f"no state of step {step}")
    return found, checkpoint.load(found)


def _last_recorded(folder: ArmFolder, attempt: int, start_step: int) -> int:
    """The last step up to which no record is missing: a lost machine may have lost some."""
    paths = [folder.steps(number) for number in range(1, attempt)]
    last = start_step
    for record in join_attempts(read_jsonl(path, StepRecord) for path in paths):
        if record.step != last + 1:
            break
        last = record.step
    return last


def _train(arm: _Arm) -> Outcome:
    engine, job, recorder = arm.engine, arm.job, arm.recorder
    parent = int(os.environ.get(PARENT_PID, "0"))
    while engine.step < job.stop_step:
        engine.train_step(arm.schedule.learning_rate_at(engine.step + 1))
        if recorder.stop_reason:
            return _stopped(arm)
        if parent and os.getppid() != parent:
            raise SystemExit("the pilot that started this arm is gone")
        _at_step(arm)
        if recorder.stop_reason:
            return _stopped(arm)
        ended = early_end.after_step(job, engine, recorder, arm.folder.root.parent.parent)
        if ended is not None:
            checkpoint.prune(arm.folder.checkpoints, keep_newest=0)
            return ended
        if recorder.stop_reason:
            return _stopped(arm)
        _keep(arm)
    engine.flush()
    if recorder.stop_reason:
        return _stopped(arm)
    recorder.evidence(movement.measure(engine, arm.start_weights))
    if job.cooldown_steps:
        _cool_down(arm)
        if recorder.stop_reason:
            return _stopped(arm)
    checkpoint.prune(arm.folder.checkpoints, keep_newest=0)  # nothing is left to be resumed
    return Outcome(status=Outcome.COMPLETED, last_step=job.stop_step)


def _at_step(arm: _Arm) -> None:
    """Validate where the plan says so; before saving, so that a resume misses none."""
    step = arm.engine.step
    places = [at for at, planned in arm.job.validations.items() if planned == step]
    places = [at for at in places if at not in (BEFORE, COOLDOWN_END)]
    reasons = tuple(r for r, planned in arm.job.checkpoints.items() if planned == step)
    if places or reasons:
        arm.engine.flush()  # this step's own numbers decide whether it is worth keeping
        if arm.recorder.stop_reason:
            return
    for at in places:
        _validate(arm, at)


def _keep(arm: _Arm) -> None:
    """Save where the plan says so, and now and then to resume from."""
    step = arm.engine.step
    reasons = tuple(r for r, planned in arm.job.checkpoints.items() if planned == step)
    every = arm.config.pilot.checkpoint_every_steps
    affordable = arm.plan.checkpoint_bytes <= arm.config.pilot.max_checkpoint_bytes
    if reasons or (step % every == 0 and affordable):
        _save(arm, reasons)


def _cool_down(arm: _Arm) -> None:
    """The branch from the end of the peak: the rate goes linearly to 0, then a validation."""
    engine, job = arm.engine, arm.job
    arm.recorder.start_cooldown()
    for index in range(1, job.cooldown_steps + 1):
        rate = cooldown_rate(arm.schedule, job.stop_step, job.cooldown_steps, index)
        engine.train_step(rate)
        if arm.recorder.stop_reason:
            return
    engine.flush()
    if not arm.recorder.stop_reason:
        engine.request_validation(COOLDOWN_END)


def _validate(arm: _Arm, at: str) -> None:
    engine = arm.engine
    reset_peak(engine.device)
    started = time.perf_counter()
    engine.request_validation(at)
    if at != BEFORE:  # the optimizer's state exists by now
        arm.recorder.resource(_memory(arm, "memory_validation", started))


def _save(arm: _Arm, reasons: tuple[str, ...]) -> None:
    engine = arm.engine
    reset_peak(engine.device)
    started = time.perf_counter()
    saved = checkpoint.save(arm.folder.checkpoints, engine.step, engine.snapshot(), reasons=reasons)
    checkpoint.prune(arm.folder.checkpoints, keep_newest=_KEEP_NEWEST)
    secs = time.perf_counter() - started
    arm.recorder.resource(
        Resource(kind="checkpoint", step=engine.step, secs=secs, num_bytes=saved.num_bytes)
    )
    if reasons and "start" not in reasons:
        arm.recorder.resource(_memory(arm, "memory_saving", started))


def _memory(arm: _Arm, kind: str, started: float) -> Resource:
    return Resource(
        kind=kind,
        step=arm.engine.step,
        secs=time.perf_counter() - started,
        peak_memory_bytes=peak_memory_bytes(arm.engine.device),
        num_bytes=memory_limit_bytes(arm.engine.device),
    )


def _stopped(arm: _Arm) -> Outcome:
    arm.engine.flush()
    return Outcome(
        status=Outcome.STOPPED,
        last_step=arm.recorder.last_step,
        where="watching",
        step=arm.recorder.stop_step,
        message=arm.recorder.stop_reason,
    )


def _failed(failure: RecipeFailure, last_step: int, engine: NativeEngine | None) -> Outcome:
    return Outcome(
        status=Outcome.OUT_OF_MEMORY if failure.out_of_memory else Outcome.EXCEPTION,
        last_step=last_step,
        where=failure.where,
        step=failure.step,
        row_ids=failure.row_ids,
        error_type=type(failure.error).__name__,
        message=hide_message(str(failure.error)[:2_000]),
        traceback_text=hide_message(failure.traceback_text),
        peak_memory_bytes=peak_memory_bytes(engine.device) if engine is not None else None,
    )
