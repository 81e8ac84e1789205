"""A long series as few points: lowest, highest and median of each bin; a short one as it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pilot.diagnose.numbers import Floats
from pilot.series.types import Series

LARGEST = 1e100  # what is beyond has no place on an axis, whose arithmetic would overflow
_MAX_POINTS = 1500  # about two per pixel of the figure: more cannot be seen
_MIN_SMOOTHED = 200  # points; a shorter curve is read better without a second line
_WINDOW = 15  # points of the running median


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What is drawn of a series, one entry per bin or point; NaN where nothing is finite.

    ``low`` and ``high`` are equal for a short series. ``window`` is the number of points behind a
    value of ``median``; ``broken`` are the steps whose value is not finite.
    """

    steps: Floats
    low: Floats
    high: Floats
    median: Floats
    window: int
    broken: Floats

    @property
    def is_binned(self) -> bool:
        """Whether a band is drawn instead of each point."""
        return self.low is not self.high


def shape(series: Series) -> Shape:
    """Prepare a series for drawing; every extreme of a long one stays visible."""
    steps = series.steps.astype(np.float64)
    finite = np.isfinite(series.values)
    values = np.where(finite, np.clip(series.values, -LARGEST, LARGEST), np.nan)
    if len(values) <= _MAX_POINTS:
        window = 1 if len(values) < _MIN_SMOOTHED else _WINDOW
        middle = running_median(values, window)
        low = high = values
    else:
        edges = np.linspace(0, len(values), _MAX_POINTS // 2 + 1).astype(int)
        parts = [values[a:b] for a, b in zip(edges, edges[1:], strict=False)]
        low, middle, high = (np.array(column) for column in zip(*map(_summary, parts), strict=True))
        window, steps = len(parts[0]), steps[(edges[:-1] + edges[1:]) // 2]
    broken = series.steps[~finite].astype(np.float64)
    return Shape(steps=steps, low=low, high=high, median=middle, window=window, broken=broken)


def running_median(values: Floats, window: int) -> Floats:
    """Centred median over ``window`` points, fewer at both ends so that it stays centred.

    The non-finite are left out, and stay NaN. A median, because one spike must neither vanish from
    the raw curve nor bend the smooth one.
    """
    smoothed = np.full(len(values), np.nan)
    for index in np.flatnonzero(np.isfinite(values)):
        half = min(window // 2, index, len(values) - 1 - index)
        part = values[max(0, index - half) : index + half + 1]
        smoothed[index] = np.median(part[np.isfinite(part)])
    return smoothed


def _summary(part: Floats) -> tuple[float, float, float]:
    """Lowest, median, highest of the finite values; NaN without one."""
    usable = part[np.isfinite(part)]
    if not len(usable):
        return np.nan, np.nan, np.nan
    return float(usable.min()), float(np.median(usable)), float(usable.max())
