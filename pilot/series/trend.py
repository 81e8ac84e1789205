"""Trend statistics of a short series, robust to outliers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pilot.series.rolling import mid


def mann_kendall(values: Sequence[float]) -> float:
    """Z = (S - sign S) / sqrt(n (n - 1) (2 n + 5) / 18), S = pairs that rise minus pairs that fall.

    Positive for a rising series, 0.0 for a constant one or fewer than three values.
    """
    n = len(values)
    if n < 3:
        return 0.0
    row = np.asarray(values, dtype=np.float64)
    above, below = row[:, None] < row, row[:, None] > row
    score = int(np.triu(above).sum()) - int(np.triu(below).sum())
    sign = (score > 0) - (score < 0)
    return float((score - sign) / (n * (n - 1) * (2 * n + 5) / 18.0) ** 0.5)


def theil_sen(values: Sequence[float]) -> float:
    """The median slope of all pairs, per place; 0.0 for fewer than two values."""
    n = len(values)
    slopes = [(values[j] - values[i]) / (j - i) for i in range(n) for j in range(i + 1, n)]
    return mid(slopes) if slopes else 0.0
