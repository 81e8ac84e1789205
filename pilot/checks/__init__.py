"""The checks: pure rules over records and evidence. Importing the package registers them all."""

from __future__ import annotations

from pilot.checks import (
    clipping,
    coverage,
    determinism,
    early_damage,
    events,
    finite,
    jump,
    labels,
    memory,
    movement,
    order,
    outcome,
    paired_loss,
    progress,
    schedule,
    silent,
    validation,
)

__all__ = [
    "clipping",
    "coverage",
    "determinism",
    "early_damage",
    "events",
    "finite",
    "jump",
    "labels",
    "memory",
    "movement",
    "order",
    "outcome",
    "paired_loss",
    "progress",
    "schedule",
    "silent",
    "validation",
]
