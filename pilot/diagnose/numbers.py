"""The few numbers of a series that a sentence needs; non-finite values never enter one."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pilot.series.limits import EVENT_WINDOW
from pilot.series.types import LOSS, Event, Series, Trace

Floats = npt.NDArray[np.float64]

_LEVEL_POINTS = 16  # as the reference of the series engine: the median of the last 16 values


def series_of(trace: Trace, name: str) -> Series | None:
    """The series an event speaks of: one of ``train``, else a validation set by its name."""
    bare = name.removeprefix("validation").lstrip("/:")
    found = trace.train.get(name)
    for key in (name, bare):
        if found is None:
            found = trace.validations.get(key)
    return found


def num_points(
    series: Series | None, event: Event | None = None, *, finite: bool = True, fine: bool = False
) -> int:
    """How many points; within an event's steps, and only the non-finite ones, if asked.

    ``fine``: only the finite ones.
    """
    if series is None:
        return 0
    if fine:
        return int(np.isfinite(series.values).sum())
    inside = np.ones(len(series.steps), dtype=bool)
    if event is not None:
        inside = (series.steps >= event.first_step) & (series.steps <= event.last_step)
    return int((inside if finite else inside & ~np.isfinite(series.values)).sum())


def interval(trace: Trace) -> int:
    """Steps between two points of the loss (median; of any series without one); 1 at least."""
    series = trace.train.get(LOSS) or next(iter(trace.train.values()), None)
    if series is None:
        series = next(iter(trace.validations.values()), None)
    gaps = np.diff(np.unique(series.steps)) if series is not None else np.empty(0)
    return max(1, int(np.median(gaps))) if len(gaps) else 1


def span(trace: Trace) -> tuple[int, int, int] | None:
    """Number of distinct steps, first and last one, over all series; none without a point."""
    parts = [s.steps for s in (*trace.train.values(), *trace.validations.values()) if len(s.steps)]
    if not parts:
        return None
    steps = np.unique(np.concatenate(parts))
    return len(steps), int(steps[0]), int(steps[-1])


def level_before(series: Series, step: int) -> float | None:
    """The median of the last 16 finite values before ``step``."""
    values = _finite(series.values[series.steps < step])
    return float(np.median(values[-_LEVEL_POINTS:])) if len(values) else None


def peak(series: Series, first: int, last: int) -> tuple[int, float] | None:
    """Step and value of the largest finite value from ``first`` to ``last``."""
    return _extreme(series, (series.steps >= first) & (series.steps <= last), 1)


def lowest(series: Series, before: int | None = None) -> tuple[int, float] | None:
    """Step and value of the smallest finite value (of the steps ``before`` one)."""
    inside = np.ones(len(series.steps), dtype=bool) if before is None else series.steps < before
    return _extreme(series, inside, -1)


def between(series: Series, first: int, last: int) -> Floats:
    """The finite values from step ``first`` to ``last``."""
    return _finite(series.values[(series.steps >= first) & (series.steps <= last)])


def quarters(values: Floats) -> tuple[float | None, float | None]:
    """The medians of the first and of the last quarter, as the series engine takes them."""
    count = max(1, len(values) // 4)
    if not len(values):
        return None, None
    return float(np.median(values[:count])), float(np.median(values[-count:]))


def bad_words(series: Series, event: Event) -> str:
    """What an event's values that are not finite are: ``NaN``, ``inf``, ``-inf``, two of them."""
    values = series.values[(series.steps >= event.first_step) & (series.steps <= event.last_step)]
    bad = values[~np.isfinite(values)]
    if not len(bad):
        return "NaN or inf"
    kinds = [("NaN", np.isnan(bad)), ("inf", bad == np.inf), ("-inf", bad == -np.inf)]
    return " or ".join(word for word, found in kinds if found.any())


def records_before(
    series: Series, grad_norm: Series | None, step: int
) -> list[tuple[int, float, float | None]]:
    """The last records before ``step`` with a finite value, as the series engine remembers them."""
    kept = np.flatnonzero((series.steps < step) & np.isfinite(series.values))[-EVENT_WINDOW:]
    norms = {} if grad_norm is None else dict(zip(grad_norm.steps, grad_norm.values, strict=True))
    return [
        (int(at), float(value), None if (norm := norms.get(at)) is None else float(norm))
        for at, value in zip(series.steps[kept], series.values[kept], strict=True)
    ]


def first_value(series: Series, share: float = 0.0) -> float | None:
    """The first finite value, or the median of the first ``share`` of them."""
    values = _finite(series.values)
    return float(np.median(values[: _count(values, share)])) if len(values) else None


def last_level(series: Series, until: int | None = None, share: float = 0.02) -> float | None:
    """The median of the last ``share`` of the finite values (16 at most for the default)."""
    keep = np.ones(len(series.steps), dtype=bool) if until is None else series.steps <= until
    values = _finite(series.values[keep])
    return float(np.median(values[-_count(values, share) :])) if len(values) else None


def _count(values: Floats, share: float) -> int:
    return max(1, math.ceil(share * len(values)))


def _finite(values: Floats) -> Floats:
    kept: Floats = values[np.isfinite(values)]
    return kept


def _extreme(series: Series, inside: npt.NDArray[np.bool_], sign: int) -> tuple[int, float] | None:
    usable = np.flatnonzero(inside & np.isfinite(series.values))
    if not len(usable):
        return None
    best = usable[int(np.argmax(sign * series.values[usable]))]
    return int(series.steps[best]), float(series.values[best])
