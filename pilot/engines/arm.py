"""An arm inside its process: what it holds, and how it validates and saves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from pilot import checkpoint
from pilot.config import Config
from pilot.engines.base import Engine
from pilot.engines.recorder import Recorder
from pilot.folder import ArmFolder, Job
from pilot.memory import memory_limit_bytes, peak_memory_bytes, reset_peak
from pilot.plan import BEFORE, Plan
from pilot.records import Resource
from pilot.schedule import Schedule

_KEEP_NEWEST = 2


@dataclass(frozen=True, kw_only=True)
class RunningArm:
    """An arm inside its process: where it lies, what it has to do, and the engine that does it."""

    folder: ArmFolder
    job: Job
    config: Config
    schedule: Schedule
    plan: Plan
    engine: Engine
    recorder: Recorder
    start_weights: Mapping[str, torch.Tensor]


def validate_at(arm: RunningArm, at: str) -> None:
    """Validate all sets at the planned place ``at``; the peak of memory is recorded."""
    engine = arm.engine
    reset_peak(engine.device)
    started = time.perf_counter()
    engine.request_validation(at)
    if at != BEFORE:  # the optimizer's state exists by now
        arm.recorder.resource(_memory(arm, "memory_validation", started))


def save_state(arm: RunningArm, reasons: tuple[str, ...]) -> None:
    """Save the state, pinned by ``reasons`` (none: to resume from), and prune older ones."""
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


def _memory(arm: RunningArm, kind: str, started: float) -> Resource:
    return Resource(
        kind=kind,
        step=arm.engine.step,
        secs=time.perf_counter() - started,
        peak_memory_bytes=peak_memory_bytes(arm.engine.device),
        num_bytes=memory_limit_bytes(arm.engine.device),
    )
