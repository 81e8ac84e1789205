"""Whether a forked arm really goes on as the baseline did, up to where it may first differ.

A state holds weights, optimizer and random states, but not what a recipe keeps for itself (its own
generator, a counter). So the proof is made on the run: from the fork to the first step that may
differ, that one included (its loss and gradients come before the change acts), every measured value
must be the baseline's, bit for bit on a CPU.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
from pathlib import Path

from pilot.engines.base import Engine
from pilot.folder import ArmFolder, Job
from pilot.jsonl import write_json
from pilot.records import StepRecord
from pilot.view import load

# On a device whose sums are not deterministic: far above its rounding, far below any effect.
_REL_TOLERANCE = 1e-3


class ForkRefused(Exception):
    """A forked arm is not the baseline's continuation: it has to begin at the start."""


def check_fork(job: Job, engine: Engine, root: Path) -> None:
    """Compare a forked arm with the baseline, at the first step that may differ.

    Args:
        job: the arm's job.
        engine: the engine after a step; its records are flushed when they are needed.
        root: the pilot's folder.

    Raises:
        ForkRefused: with the first step whose values differ.
    """
    if job.fork_step is None or engine.step != job.first_difference_step:
        return
    engine.flush()
    view = load(root)
    arm, baseline = view.arms[job.arm], view.baseline
    if baseline is None:
        return
    exact = engine.device.type == "cpu"
    mine = {r.step: r for r in (*arm.steps, *arm.cooldown)}
    theirs = {r.step: r for r in (*baseline.steps, *baseline.cooldown)}
    for step in range(job.fork_step + 1, engine.step + 1):
        if step in mine and step in theirs and not _same(mine[step], theirs[step], exact):
            raise ForkRefused(
                f"step {step} after the fork at {job.fork_step} is not the baseline's: the recipe "
                "keeps a state of its own"
            )


def _same(one: StepRecord, other: StepRecord, exact: bool) -> bool:
    if one.row_hash != other.row_hash:
        return False
    pairs = ((one.loss, other.loss), (one.grad_norm, other.grad_norm))
    return all(_equal(a, b, exact) for a, b in pairs)


def _equal(a: float, b: float, exact: bool) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b if exact else math.isclose(a, b, rel_tol=_REL_TOLERANCE)


def forget_fork(folder: ArmFolder, job: Job, reason: str) -> Job:
    """Remove what was measured after a fork that does not hold; the arm begins at the start.

    Its seconds stay in the resources: they were spent.
    """
    files = (
        *folder.root.glob("steps.*.jsonl"),
        *folder.root.glob("cooldown.*.jsonl"),
        folder.validations,
        folder.evidence,
    )
    for path in files:
        path.unlink(missing_ok=True)
    shutil.rmtree(folder.checkpoints, ignore_errors=True)
    fresh = dataclasses.replace(job, fork_step=None)
    write_json(folder.job, fresh)
    write_json(folder.lineage, {"fork_refused": reason})
    return fresh
