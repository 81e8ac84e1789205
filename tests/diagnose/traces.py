"""Traces and studies made by hand, and small logs on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pilot.diagnose.study import Study
from pilot.series.types import (
    ALARM_STATES,
    FAIL,
    GRAD_NORM,
    HIGH,
    LEARNING_RATE,
    LOSS,
    NOTE,
    WARN,
    Diagnosis,
    Event,
    Series,
    Trace,
)


def series(values: Sequence[float], steps: Sequence[int] | None = None) -> Series:
    """A series on steps 1, 2, ... or on the given ones."""
    own = range(1, len(values) + 1) if steps is None else steps
    return Series(
        steps=np.array(list(own), dtype=np.int64), values=np.array(values, dtype=np.float64)
    )


def trace(loss: Sequence[float], steps: Sequence[int] | None = None, **more: Any) -> Trace:
    """A trace of the Hugging Face kind with a loss; ``more`` are other series and fields."""
    train = {LOSS: series(loss, steps)}
    for name in (GRAD_NORM, LEARNING_RATE):
        if name in more:
            train[name] = series(more.pop(name), steps)
    fields = {"source": "run.json", "format": "trainer_state", "axis": "steps", **more}
    return Trace(train=train, **fields)


def event(kind: str, first: int, last: int, severity: str = FAIL, **more: Any) -> Event:
    """An event of the loss, confidence high."""
    fields = {"series": LOSS, "confidence": HIGH, **more}
    return Event(kind=kind, first_step=first, last_step=last, severity=severity, **fields)


def study(made: Trace, state: str, *events: Event, main: int | None = None) -> Study:
    """A judged run."""
    found = Diagnosis(state=state, alarm=state in ALARM_STATES, events=events, main=main)
    return Study(source=made.source, path=made.source, trace=made, diagnosis=found)


def diverged() -> Study:
    """Level 1.0, a burst at 21-24, up to 5.0 from 41 on and never back; 60 points, every 10."""
    loss = [1.0] * 20 + [2.0, 3.0, 2.5, 2.0] + [1.0] * 16 + [4.0, 5.0] + [3.0] * 18
    steps = [10 * index for index in range(1, 61)]
    grad = [0.5] * 39 + [50.0] * 21
    made = trace(loss, steps, grad_norm=grad, learning_rate=[1e-4] * 60)
    return study(
        made,
        "diverged",
        event("grad_norm_alarm", 400, 400, NOTE, series=GRAD_NORM),
        event("consecutive_spikes", 210, 240, WARN, recovered_step=250, size_frac=2.0),
        event("never_recovers", 410, 600, size_frac=4.0, size_sigma=41.25, grad_norm_lead_steps=20),
        main=2,
    )


def write_state(path: Path, loss: Sequence[float], **more: Sequence[float]) -> Path:
    """A ``trainer_state.json`` with one entry per step; ``more`` are other keys of the entries."""
    history = []
    for index, value in enumerate(loss):
        entry = {"step": index + 1, "loss": value, "epoch": 0.01 * (index + 1)}
        entry |= {key: values[index] for key, values in more.items()}
        history.append(entry)
    state = {"global_step": len(loss), "log_history": history}
    path.write_text(json.dumps(state), encoding="utf-8")  # NaN is written as Hugging Face does
    return path


def healthy_loss(num: int = 120) -> list[float]:
    """A falling loss with 2 % noise, always the same."""
    noise = np.random.default_rng(0).normal(1.0, 0.02, num)
    return [float(v) for v in (1.5 + 1.5 / np.sqrt(1 + np.arange(num) / 5)) * noise]
