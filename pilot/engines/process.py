"""The process of one arm: ``python -m pilot arm DIR``.

It starts or resumes, trains to the job's last step, branches into the cool-down, and writes its
completion marker. Whatever the recipe's code raises becomes an outcome; only pilot's own faults
leave the folder without a marker.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np
import torch
import yaml

from pilot import checkpoint
from pilot.config import Config, validate
from pilot.engines import PARENT_PID, early_end, world
from pilot.engines.arm import RunningArm, save_state, validate_at
from pilot.engines.base import Engine, Program, StepRequest
from pilot.engines.choose import open_workload
from pilot.engines.ending import failed
from pilot.engines.extension import extend
from pilot.engines.fork_check import ForkRefused, check_fork, forget_fork
from pilot.engines.guard import guard
from pilot.engines.leader import begin_again, lead
from pilot.engines.recorder import Recorder
from pilot.engines.settle import base_table, settle_rates
from pilot.engines.starting import measure_start, require_same_rows, take_up
from pilot.entry import run_guarded
from pilot.errors import RecipeFailure
from pilot.experiments import movement
from pilot.folder import BASELINE, ArmFolder, Job, PilotFolder, count_attempts, read_json
from pilot.jsonl import from_json, write_json
from pilot.locks import hold
from pilot.plan import BEFORE, COOLDOWN_END, read_plan
from pilot.records import Outcome
from pilot.schedule import full_schedule
from pilot.segments import cooldown_rate

# An arm whose parent was killed ends at its next step; a resumed pilot waits that long for it.
_LOCK_WAIT_SECS = 120.0
_ENDED = (Outcome.COMPLETED, Outcome.DECIDED, Outcome.IDENTICAL)


def run_arm(root: Path) -> int:
    """Run the arm in ``root`` to its end; returns 0 when it has an outcome (of any kind).

    One of several processes that is not the first one follows it, and writes nothing.
    """
    folder = ArmFolder(root)
    with world.stoppable():
        if world.rank():
            from pilot.engines.follower import follow_arm

            return world.end_process(run_guarded(lambda: follow_arm(folder), folder.error))
        return world.end_process(run_guarded(lambda: _run(folder), folder.error))


def _run(folder: ArmFolder) -> int:
    job = from_json(Job, read_json(folder.job))
    config = validate(yaml.safe_load(folder.config.read_text(encoding="utf-8")))
    threads = read_plan(read_json(PilotFolder(folder.root.parent.parent).plan)).num_threads
    if threads:
        torch.set_num_threads(threads)
    with hold(folder.root / "arm.lock", "another process runs this arm", wait_secs=_LOCK_WAIT_SECS):
        try:
            outcome = _recorded(folder, job, config)
        except ForkRefused as refused:
            fresh = forget_fork(folder, job, str(refused))
            begin_again()
            outcome = _recorded(folder, fresh, config)
        write_json(folder.outcome, outcome)
        if outcome.status in _ENDED:  # nothing is left to be resumed
            checkpoint.prune(folder.checkpoints, keep_newest=0)
    failed_alone = outcome.status in (Outcome.EXCEPTION, Outcome.OUT_OF_MEMORY)
    return world.EXIT_PEERS if failed_alone and world.size() > 1 else 0


def _recorded(folder: ArmFolder, job: Job, config: Config) -> Outcome:
    attempt = count_attempts(folder) + 1
    recorder = Recorder(
        folder, attempt, start_step=job.start_step, pins_first_clip=job.arm == BASELINE
    )
    try:
        return _attempt(folder, job, config, recorder, attempt)
    finally:
        recorder.close()


def _attempt(
    folder: ArmFolder, job: Job, config: Config, recorder: Recorder, attempt: int
) -> Outcome:
    engine: Engine | None = None
    try:
        started = time.perf_counter()
        pilot_folder = PilotFolder(folder.root.parent.parent)
        order = np.load(pilot_folder.order, allow_pickle=False)
        with guard("build", step=None, row_ids=()):
            workload = open_workload(config, Path(job.module_path), pilot_folder)
            num_rows = workload.num_rows
        require_same_rows(job, workload, pilot_folder)
        engine = lead(
            workload.make_engine(
                order=order, first_step=job.start_step + 1, observer=recorder, attempt=attempt
            )
        )
        arm = RunningArm(
            folder=folder,
            job=job,
            config=config,
            schedule=full_schedule(config, num_rows or 0, base_table(pilot_folder)),
            plan=read_plan(read_json(pilot_folder.plan)),
            engine=engine,
            recorder=recorder,
            start_weights=movement.start_weights(engine),
        )
        goes_on = take_up(arm, attempt, started, pilot_folder)
        return engine.run(_program(arm, goes_on))
    except (RecipeFailure, world.PeerLost, world.Stopped) as failure:
        if engine is not None:
            with contextlib.suppress(RuntimeError):  # a GPU after an assertion answers nothing
                engine.flush()
        if not isinstance(failure, RecipeFailure) or world.is_lost_peer(failure.error):
            world.wait_for_the_agent()
        if not isinstance(failure, RecipeFailure):
            raise
        recorder.on_exception(failure)
        return failed(failure, recorder.last_step, engine)


def _program(arm: RunningArm, goes_on: bool) -> Program:
    """Everything that the arm does, step by step, and how it ended."""
    root = arm.folder.root.parent.parent
    settled = settle_rates(arm, goes_on)
    if isinstance(settled, Outcome):
        return settled
    arm = settled
    if not goes_on:
        measure_start(arm, PilotFolder(root))
    engine, job, recorder = arm.engine, arm.job, arm.recorder
    parent = int(os.environ.get(PARENT_PID, "0"))
    while engine.step < job.stop_step:
        step = engine.step + 1
        rate, is_last = arm.schedule.learning_rate_at(step), step == job.stop_step
        yield StepRequest(learning_rate=rate, keep_grads=is_last)
        if recorder.stop_reason:
            return _stopped(arm)
        if parent and os.getppid() != parent:
            raise SystemExit("the pilot that started this arm is gone")
        _at_step(arm)
        if recorder.stop_reason:
            return _stopped(arm)
        check_fork(job, engine, root)
        ended = early_end.after_step(job, engine, recorder, root)
        if ended is not None:
            return ended
        if recorder.stop_reason:
            return _stopped(arm)
        _keep(arm)
    engine.flush()
    if not recorder.stop_reason:
        recorder.evidence(movement.measure(engine, arm.start_weights))
        yield from _cool_down(arm)
    if not recorder.stop_reason:
        yield from extend(arm)
    if recorder.stop_reason:
        return _stopped(arm)
    return Outcome(status=Outcome.COMPLETED, last_step=job.stop_step)


def _at_step(arm: RunningArm) -> None:
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
        validate_at(arm, at)


def _keep(arm: RunningArm) -> None:
    """Save where the plan says so, and now and then to resume from."""
    step = arm.engine.step
    reasons = tuple(r for r, planned in arm.job.checkpoints.items() if planned == step)
    every = arm.config.pilot.checkpoint_every_steps
    affordable = arm.plan.checkpoint_bytes <= arm.config.pilot.max_checkpoint_bytes
    if reasons or (step % every == 0 and affordable):
        save_state(arm, reasons)


def _cool_down(arm: RunningArm) -> Generator[StepRequest, None, None]:
    """The branch from the end of the peak: the rate goes linearly to 0, then a validation."""
    engine, job = arm.engine, arm.job
    if not job.cooldown_steps:
        return
    arm.recorder.start_cooldown()
    for index in range(1, job.cooldown_steps + 1):
        rate = cooldown_rate(arm.schedule, job.stop_step, job.cooldown_steps, index)
        yield StepRequest(learning_rate=rate, forced=True)
        if arm.recorder.stop_reason:
            return
        check_fork(job, engine, arm.folder.root.parent.parent)
    engine.flush()
    if not arm.recorder.stop_reason:
        engine.request_validation(COOLDOWN_END)


def _stopped(arm: RunningArm) -> Outcome:
    arm.engine.flush()
    return Outcome(
        status=Outcome.STOPPED,
        last_step=arm.recorder.last_step,
        where="watching",
        step=arm.recorder.stop_step,
        message=arm.recorder.stop_reason,
    )
