"""The window tier of a run: its step records through the series engine, live or from the files."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.records import StepRecord
from pilot.series.monitor import Monitor, Point


def point_of(record: StepRecord) -> Point:
    """What the series engine sees of one step."""
    return Point(
        step=record.step,
        loss=record.loss,
        grad_norm=record.grad_norm,
        learning_rate=record.learning_rate,
        loss_scale=record.loss_scale,
        skipped=record.step_skipped,
    )


def watch(records: Iterable[StepRecord], objective: str) -> Monitor:
    """A monitor that has seen ``records`` (in order of step) and waits for more.

    ``objective`` is the recipe's (``lm``, ``preference``, ``rl``, ``regression``): it chooses the
    rules. NaN and inf are passed on as they are; what each rule does with them, with missing and
    with constant series stands at the rule.
    """
    monitor = Monitor(objective=objective)
    for record in records:
        monitor.update(point_of(record))
    return monitor
