"""What a run that starts from the user's checkpoint got back of it, and what not. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EXPERIMENT = "resume_from"
WEIGHTS, OPTIMIZER, SCHEDULE = "weights", "optimizer state", "schedule position"
SCALE, RANDOM, DATA = "loss scale", "random states", "data position"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a run's state: whether it was restored; ``why`` not, or from where."""

    name: str
    restored: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class Restored:
    """A start from ``source`` after ``step``: every part, and what else is to be known."""

    source: str
    step: int
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()

    def values(self) -> dict[str, Any]:
        """As plain JSON values, for the survey and for evidence."""
        return {
            "source": self.source,
            "step": self.step,
            "parts": [{"name": p.name, "restored": p.restored, "why": p.why} for p in self.parts],
            "notes": list(self.notes),
        }


def start_lines(start: int, values: Mapping[str, Any] | None) -> tuple[str, ...]:
    """How a pilot that starts after step ``start`` begins, for the plan's warnings.

    Args:
        start: steps that the full run has done.
        values: ``Restored.values``; None: there is no checkpoint, or it could not be looked at.
    """
    if values is None:
        return (
            f"starts at step {start} with the weights that the recipe builds and fresh optimizer "
            "state: no recipe.resume_from",
        )
    got = [str(p["name"]) for p in values["parts"] if p["restored"]]
    begin = f"starts after step {values['step']} from {values['source']}"
    first = f"{begin}: restored {', '.join(got)}" if got else f"{begin}: nothing restored"
    return (first, *lost_lines(values), *(str(note) for note in values["notes"]))


def lost_lines(values: Mapping[str, Any]) -> tuple[str, ...]:
    """What was not restored, one line each."""
    lost: Sequence[Mapping[str, Any]] = [p for p in values["parts"] if not p["restored"]]
    return tuple(f"{p['name']} not restored from {values['source']}: {p['why']}" for p in lost)
