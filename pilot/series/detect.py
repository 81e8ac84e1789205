"""A whole trace: the online engine fed with it, then the whole-series rules, then the state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import repeat

import numpy as np

from pilot.series.limits import FEW_MAX, FEW_RISE, MIN_SERIES
from pilot.series.monitor import Monitor
from pilot.series.point import Point
from pilot.series.progress import no_progress
from pilot.series.state import diagnose
from pilot.series.types import (
    ALARM_STATES,
    GRAD_NORM,
    LEARNING_RATE,
    LOSS,
    LOSS_SCALE,
    SKIPPED,
    Diagnosis,
    Event,
    Series,
    Trace,
)
from pilot.series.validations import judge, primary, series_name

_NAMES = (LOSS, GRAD_NORM, LEARNING_RATE, LOSS_SCALE, SKIPPED)


def points(trace: Trace) -> Iterator[Point]:
    """The trace's train series joined by step, in order of step.

    Of several values of one quantity at one step the last counts. A quantity with no entry at a
    step is None there. ``skipped`` in a trace counts the updates skipped since the record before;
    a point is skipped when that is all of them (at least one per step).
    """
    named = {name: trace.train[name] for name in _NAMES if name in trace.train}
    steps, columns = _joined(named)
    *rows, counts = (columns.get(name, repeat(None, len(steps))) for name in _NAMES)
    flags = _flags(steps, counts) if SKIPPED in columns else counts
    return map(Point._make, zip(steps, *rows, flags, strict=True))


def _joined(named: Mapping[str, Series]) -> tuple[list[int], dict[str, Iterable[float | None]]]:
    """All steps, and a value or None of every series for each."""
    every = [series.steps for series in named.values()]
    if not every:
        return [], {}
    one = every[0]
    if all(np.array_equal(other, one) for other in every[1:]) and bool((np.diff(one) > 0).all()):
        return one.tolist(), {name: series.values.tolist() for name, series in named.items()}
    values = {
        name: dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
        for name, series in named.items()
    }
    steps = sorted(set().union(*values.values()))
    return steps, {name: map(own.get, steps) for name, own in values.items()}


def _flags(steps: list[int], counts: Iterable[float | None]) -> Iterator[bool | None]:
    before = 2 * steps[0] - steps[1] if len(steps) > 1 else 0
    for step, count in zip(steps, counts, strict=True):
        yield None if count is None or count != count else count >= max(step - before, 1)
        before = step


def detect(trace: Trace) -> Diagnosis:
    """Name what happened in ``trace``: events in order of first step, a state, an alarm.

    The train part is what ``Monitor`` gives online. On the whole series come ``no_progress`` and
    the validations (which a live run judges by its own gates). A trace without a training loss is
    judged by its primary validation instead. Never raises on numbers of any kind. Cost: about that
    of ``Monitor``.
    """
    loss, name = trace.train.get(LOSS), LOSS
    main = primary(trace.validations)
    if loss is None and GRAD_NORM not in trace.train and main is not None:
        loss, name = trace.validations[main], series_name(main)
        trace = replace(trace, train={**trace.train, LOSS: loss})
    monitor = Monitor(objective=trace.objective)
    for point in points(trace):
        monitor.update(point)
    monitor.finish()
    events = [_named(event, name) for event in monitor.events]
    events += judge(trace.validations, loss if name == LOSS else None)
    flat = diagnose(events, short=False, empty=False).state not in ALARM_STATES
    if loss is not None and monitor.levelled and flat:
        event = no_progress(loss, trace.validations)
        events += [_named(event, name)] if event is not None else []
    found = diagnose(events, short=_short(trace), empty=_empty(trace))
    return replace(found, levelled=monitor.levelled)


def _named(event: Event, name: str) -> Event:
    return replace(event, series=name) if event.series == LOSS else event


def _short(trace: Trace) -> bool:
    """Too few records to call a run healthy; more are needed where the loss rises."""
    loss = trace.train.get(LOSS)
    fine = loss.values[np.isfinite(loss.values)] if loss is not None else np.empty(0)
    num_validations = max((len(v.values) for v in trace.validations.values()), default=0)
    if len(fine) < MIN_SERIES:
        return 2 * num_validations < MIN_SERIES
    third = len(fine) // 3
    start, end = float(np.median(fine[:third])), float(np.median(fine[-third:]))
    return len(fine) <= FEW_MAX and end > FEW_RISE * start > 0.0


def _empty(trace: Trace) -> bool:
    return not any(len(s.values) for s in (*trace.train.values(), *trace.validations.values()))
