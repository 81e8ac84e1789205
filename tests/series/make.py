"""Traces for the tests: healthy runs by formula, and faults planted into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pilot.series.monitor import Monitor
from pilot.series.point import Point
from pilot.series.types import GRAD_NORM, LOSS, Diagnosis, Event, Series, Trace

Floats = npt.NDArray[np.float64]


def healthy(records: int = 400, *, noise: float = 0.02, seed: int = 0) -> Floats:
    """2 + 2 / (1 + t / 20) with Gaussian noise of ``noise`` x the loss."""
    rng = np.random.default_rng(seed)
    base = 2.0 + 2.0 / (1.0 + np.arange(records) / 20.0)
    return base * (1.0 + noise * rng.standard_normal(records))


def series(values: Sequence[float] | Floats, *, every: int = 1) -> Series:
    """Values at steps ``every``, 2 x ``every``, ..."""
    array = np.asarray(values, dtype=np.float64)
    return Series(steps=np.arange(1, len(array) + 1, dtype=np.int64) * every, values=array)


def trace(
    loss: Sequence[float] | Floats | None,
    grad_norm: Sequence[float] | Floats | None = None,
    *,
    validations: Mapping[str, Series] | None = None,
    objective: str = "unknown",
    every: int = 1,
) -> Trace:
    """A trace of a loss and perhaps a grad norm, both from the first record on."""
    train = {}
    if loss is not None:
        train[LOSS] = series(loss, every=every)
    if grad_norm is not None:
        train[GRAD_NORM] = series(grad_norm, every=every)
    return Trace(
        source="test",
        format="test",
        axis="steps",
        train=train,
        validations=validations or {},
        objective=objective,
    )


def feed(monitor: Monitor, loss: Sequence[float] | Floats, *, first: int = 1) -> list[Event]:
    """All events that ``update`` returned, in that order."""
    values = np.asarray(loss, dtype=np.float64).tolist()
    return [
        event
        for step, value in enumerate(values, start=first)
        for event in monitor.update(Point(step=step, loss=value))
    ]


def main_event(found: Diagnosis) -> Event:
    """The event that decides the state."""
    assert found.main is not None
    return found.events[found.main]


def of_kind(found: Diagnosis, kind: str) -> list[Event]:
    """The events of one kind."""
    return [event for event in found.events if event.kind == kind]
