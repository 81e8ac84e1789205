"""A record of a structured log (a mapping of keys to anything) as a row of points."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from pilot.readers.fields import column, step_rank
from pilot.readers.points import ColumnKey, Points
from pilot.series.types import GRAD_NORM, LOSS, SKIPPED

# numpy 2 and torch print their numbers in a dictionary with the type around them.
_WRAPPED = re.compile(r"^(?:np|numpy)\.\w+\((.*)\)$|^tensor\(([^,()]*).*\)$", re.DOTALL)
_MAX_DEPTH = 4
EVIDENCE_ROWS = 500  # keys of later rows say nothing new on the objective


def number(value: object) -> float | None:
    """A value as a number; None where it is absent or no number. NaN and infinities are numbers."""
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if not isinstance(value, str) or len(value) > 100:
        return None
    try:
        return float(value)
    except ValueError:
        match = _WRAPPED.match(value.strip())
        return number(match[1] or match[2]) if match else None


def flat(
    record: Mapping[str, object], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, object]]:
    """The keys of nested objects joined by ``/``."""
    for key, value in record.items():
        name = f"{prefix}{key}"
        if not isinstance(value, dict):
            yield name, value
        elif depth < _MAX_DEPTH:
            yield from flat(value, f"{name}/", depth + 1)


class Plan(NamedTuple):
    """What to take from a record with given keys: its steps, most trusted first, and values."""

    steps: tuple[str, ...]
    values: tuple[tuple[str, ColumnKey], ...]
    may_decide: bool


@lru_cache(maxsize=1024)
def plan(keys: tuple[str, ...]) -> Plan:
    """The plan for the keys of a record: worked out once, as trainers repeat their keys."""
    ranked = sorted((rank, key) for key in keys if (rank := step_rank(key)) is not None)
    steps = tuple(key for _, key in ranked)
    found = [(key, place) for key in keys if key not in steps and (place := column(key))]
    if not {"train_runtime", "train/train_runtime"}.isdisjoint(keys):
        found = [(key, place) for key, place in found if place.is_validation]
    may_decide = any(decides(place) for _, place in found)
    return Plan(steps=steps, values=tuple(found), may_decide=may_decide)


def decides(place: ColumnKey | None) -> bool:
    """Whether a quantity makes a record a point: a loss, a gradient norm or a validation loss."""
    return place is not None and (place.is_validation or place.name in (LOSS, GRAD_NORM))


def has_point(record: Mapping[str, object]) -> bool:
    """Whether a record, nested or not, has a key that decides and a number under it."""
    return any(decides(column(k)) and number(v) is not None for k, v in flat(record))


def add_record(points: Points, record: Mapping[str, object], *, step: float | None = None) -> bool:
    """Add a record as a row; true when it holds a loss, a gradient norm or a validation loss.

    Not points: a summary at the end (``train_runtime`` beside ``train_loss``), and a
    configuration (a learning rate without a step or a loss). ``step`` overrides the record's own.
    """
    if dict in map(type, record.values()):
        record = dict(flat(record))
    what = plan(tuple(record))
    if step is None:
        for key in what.steps:
            step = number(record[key])
            if step is not None:
                break
    if not what.values or (step is None and not what.may_decide):
        return False
    found = [
        (place, v) for key, place in what.values if (v := _value(place, record[key])) is not None
    ]
    is_point = what.may_decide and any(decides(place) for place, _ in found)
    if not is_point and (step is None or not found):
        return False
    if len(points) < EVIDENCE_ROWS:
        points.keys.update(key for key, value in record.items() if value is not None)
    points.row(step)
    for place, value in found:
        points.put(place, value)
    return is_point


def _value(place: ColumnKey, value: object) -> float | None:
    """A flag counts only where a flag is meant."""
    if type(value) is float:
        return value
    return None if isinstance(value, bool) and place.name != SKIPPED else number(value)
