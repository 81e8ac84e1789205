"""More steps for an event that is undecided at the end of the peak: does the loss come back?

The steps start again from the state at the end of the peak, at the schedule's own rates, and are
a branch of their own: the cool-down and every comparison are as without them.
"""

from __future__ import annotations

from collections.abc import Generator

from pilot import checkpoint
from pilot.engines.arm import RunningArm
from pilot.engines.base import StepRequest
from pilot.folder import BASELINE
from pilot.jsonl import read_jsonl
from pilot.records import StepRecord, join_attempts
from pilot.watching import point_of, watch


def extend(arm: RunningArm) -> Generator[StepRequest, None, None]:
    """Train on from the end of the peak while an event is open, at most as far as planned.

    Only the baseline: its verdict is at stake. Nothing happens without an open event, or when the
    state at the end of the peak was not kept.
    """
    job, engine, recorder = arm.job, arm.engine, arm.recorder
    if job.arm != BASELINE or not arm.plan.extension_steps:
        return
    objective = str(arm.config.recipe.get("objective", "lm"))
    monitor = watch(_steps(arm), objective)
    states = [c for c in checkpoint.find(arm.folder.checkpoints) if c.step == job.stop_step]
    if not monitor.has_open or not states:
        return
    engine.restore(checkpoint.load(states[0]))
    recorder.start_extension()
    last = job.stop_step + arm.plan.extension_steps
    while engine.step < last and monitor.has_open and not recorder.stop_reason:
        yield StepRequest(learning_rate=arm.schedule.learning_rate_at(engine.step + 1))
        engine.flush()  # rare and short: the next step waits for the monitor's answer
        if recorder.newest is not None:
            monitor.update(point_of(recorder.newest))


def _steps(arm: RunningArm) -> list[StepRecord]:
    """The records of all attempts so far, the running one included."""
    paths = [arm.folder.steps(number) for number in range(1, arm.recorder.attempt + 1)]
    return join_attempts(read_jsonl(path, StepRecord) for path in paths)
