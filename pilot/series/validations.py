"""Validations: not finite, worsening, or flat while the training loss falls."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pilot.series.limits import (
    FALL_FRAC,
    FLAT_FRAC,
    HUGE,
    RISEN_FRAC,
    UNIT_FLOOR,
    WORSE_FRAC,
    WORSE_SIGMA,
)
from pilot.series.text import num, percent, sigmas, size
from pilot.series.types import FAIL, HIGH, LOW, MEDIUM, NOTE, WARN, Event, Series

Floats = npt.NDArray[np.float64]


def series_name(name: str) -> str:
    """How a validation set is called in events: ``validation``, or with a slash and its name."""
    return f"validation/{name}" if name else "validation"


def primary(validations: Mapping[str, Series]) -> str | None:
    """The set that decides: the unnamed one, else the one with most validations, else the first.

    With several sets judged alike, one of six is "worse" by chance in 14 to 16 of 100 runs.
    """
    if not validations:
        return None
    if "" in validations:
        return ""
    return max(validations, key=lambda name: len(validations[name].values))


def judge(validations: Mapping[str, Series], loss: Series | None) -> list[Event]:
    """The events of all sets; those of sets other than the primary one are notes.

    Non-finite validations are left out of the comparison. Constant sets are flat. See ``_worse``,
    ``_flat`` and ``_risen``. Cost: a few passes over each set.
    """
    main = primary(validations)
    events: list[Event] = []
    for name, series in validations.items():
        severity = WARN if name == main else NOTE
        fine = np.isfinite(series.values)
        if not fine.all():
            events.append(_nonfinite(name, series, fine))
        steps, values = series.steps[fine], np.clip(series.values[fine], -HUGE, HUGE)
        if len(values) < 3:
            continue
        event = (
            _worse(name, steps, values, severity)
            or _flat(name, steps, values, loss, severity)
            or _risen(name, steps, values)
        )
        if event is not None:
            events.append(event)
    return events


def _nonfinite(name: str, series: Series, fine: npt.NDArray[np.bool_]) -> Event:
    bad = series.steps[~fine]
    later = series.steps[fine & (series.steps > bad[-1])]
    return Event(
        kind="nonfinite",
        series=series_name(name),
        first_step=int(bad[0]),
        last_step=int(bad[-1]),
        recovered_step=int(later[0]) if len(later) else None,
        severity=FAIL,
        confidence=HIGH,
        detail=f"validation not finite at {len(bad)} of {len(fine)} validations",
    )


def _noise(values: Floats) -> float:
    """Robust sigma of one validation, from second differences (a trend drops out)."""
    if len(values) < 4:
        return 0.0
    second = np.abs(np.diff(values, n=2))
    return float(1.4826 * np.median(second) / math.sqrt(6.0))


def _worse(name: str, steps: npt.NDArray[np.int64], values: Floats, severity: str) -> Event | None:
    """The median of the last (up to three) validations is 5 % and 3 sigma above the lowest.

    At least two after the lowest; percent of max(|lowest|, 0.25 x the first). The size of the event
    is that of the last one.
    """
    place = int(np.argmin(values))
    after = values[place + 1 :]
    if len(after) < 2:
        return None
    low, end, last = float(values[place]), float(np.median(after[-3:])), float(values[-1])
    unit = max(abs(low), UNIT_FLOOR * abs(float(values[0])))
    noise = _noise(values)
    rise = end - low
    if unit == 0.0 or rise <= WORSE_FRAC * unit or rise <= WORSE_SIGMA * noise:
        return None
    large = rise > 2.0 * WORSE_FRAC * unit
    return Event(
        kind="validation_worsening",
        series=series_name(name),
        first_step=int(steps[place]),
        last_step=int(steps[-1]),
        severity=severity,
        confidence=HIGH if large and len(after) >= 3 else MEDIUM if large else LOW,
        size_sigma=sigmas(last - low, noise, unit),
        size_frac=size((last - low) / unit),
        detail=f"lowest {num(low)} at step {steps[place]}, {num(last)} at the end "
        f"({percent((last - low) / unit)})",
    )


def _risen(name: str, steps: npt.NDArray[np.int64], values: Floats) -> Event | None:
    """Too few to be certain: a note when the last is 10 % above the lowest, in one climb.

    Every validation after the lowest above the one before, the last above all but the first, and
    the rise more than 3 x the smallest of the last three moves before the lowest: their noise, as
    far as so few tell. It stays open: nothing is known of what follows.
    """
    place = int(np.argmin(values))
    before, after = values[: place + 1], values[place:]
    low, end = float(values[place]), float(values[-1])
    unit = max(abs(low), UNIT_FLOOR * abs(float(values[0])))
    noise = float(np.min(np.abs(np.diff(before))[-3:])) if place else 0.0
    if unit == 0.0 or end - low < RISEN_FRAC * unit or end - low <= WORSE_SIGMA * noise:
        return None
    if (np.diff(after) <= 0.0).any() or end <= float(np.max(values[1:-1])):
        return None
    return Event(
        kind="validation_worsening",
        series=series_name(name),
        first_step=int(steps[place]),
        last_step=int(steps[-1]),
        is_open=True,
        severity=NOTE,
        confidence=LOW,
        size_frac=size((end - low) / unit),
        detail=f"lowest {num(low)} at step {steps[place]}, {num(end)} at the end "
        f"({percent((end - low) / unit)}); too few validations to be certain",
    )


def _flat(
    name: str,
    steps: npt.NDArray[np.int64],
    values: Floats,
    loss: Series | None,
    severity: str,
) -> Event | None:
    """No validation is below the first by 1 % and 2 sigma, and the training loss fell by 5 %.

    The 2 sigma count for at most 5 % of the first.
    """
    first, best = float(values[0]), float(np.min(values[1:]))
    margin = max(FLAT_FRAC * abs(first), min(2.0 * _noise(values), FALL_FRAC * abs(first)))
    if loss is None or first - best > margin:
        return None
    inside = np.isfinite(loss.values) & (loss.steps >= steps[0]) & (loss.steps <= steps[-1])
    train = np.clip(loss.values[inside], -HUGE, HUGE)
    if len(train) < 6:
        return None
    third = max(len(train) // 4, 3)
    start, end = float(np.median(train[:third])), float(np.median(train[-third:]))
    if start - end <= FALL_FRAC * abs(start):
        return None
    return Event(
        kind="validation_not_improving",
        series=series_name(name),
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        severity=severity,
        confidence=MEDIUM if len(values) >= 5 else LOW,
        size_frac=size((best - first) / abs(first)) if first else None,
        detail=f"validation {num(first)} at first, at best {num(best)}, while the training loss "
        f"fell from {num(start)} to {num(end)}",
    )
