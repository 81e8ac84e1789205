"""An arm of a pilot as a log: its folder, or the folder of the whole pilot (a trace per arm)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pilot.folder import ArmFolder, PilotFolder
from pilot.readers import source
from pilot.readers.points import Points
from pilot.readers.record import number
from pilot.series.types import GRAD_NORM, LEARNING_RATE, LOSS, LOSS_SCALE, SKIPPED, Trace

NAME = "pilot"
_NAMES = {
    LOSS: "loss",
    GRAD_NORM: "grad_norm",
    LEARNING_RATE: "learning_rate",
    LOSS_SCALE: "loss_scale",
    SKIPPED: "step_skipped",
}


def is_arm(path: Path) -> bool:
    """An arm's folder: a job, and the step records of at least one attempt."""
    arm = ArmFolder(path)
    return arm.job.is_file() and arm.steps(1).is_file()


def arms(path: Path) -> list[Path]:
    """The folders of the arms of a pilot's folder, or of an arm's own; empty: it is neither."""
    if is_arm(path):
        return [path]
    if not PilotFolder(path).plan.is_file():
        return []
    return sorted(arm for arm in (path / "arms").glob("*") if is_arm(arm))


def read_arm(path: Path) -> Iterator[Trace]:
    """The steps and validations of one arm, all attempts: a later one wins from its start on."""
    points = Points(path, NAME)
    for attempt in range(1, 1000):
        steps = ArmFolder(path).steps(attempt)
        if not steps.is_file():
            break
        for record in _records(steps):
            values = {name: number(record.get(key)) for name, key in _NAMES.items()}
            points.train(number(record.get("step")), values)
    if ArmFolder(path).validations.is_file():
        for record in _records(ArmFolder(path).validations):
            name, loss = str(record.get("name", "")), number(record.get("loss"))
            points.validation(number(record.get("step")), {name: loss})
    yield from points.traces()


def _records(path: Path) -> Iterator[dict[str, object]]:
    for text in source.lines(path):
        try:
            record = json.loads(text)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record
