"""Moving order statistics against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from pilot.series.rolling import Rolling, median, mid
from pilot.series.trend import mann_kendall, theil_sen


def test_the_moving_median_is_numpys() -> None:
    values = np.random.default_rng(1).standard_normal(300).round(1).tolist()
    window = Rolling(17)
    for place, value in enumerate(values):
        window.push(value)
        last = values[max(0, place - 16) : place + 1]
        assert window.ordered == sorted(last)
        assert window.median() == pytest.approx(float(np.median(last)))


def test_quantile_and_smallest_above() -> None:
    window = Rolling(10)
    for value in (0.0, 0.0, 3.0, 1.0, 2.0):
        window.push(value)
    assert window.quantile(0.9) == 3.0
    assert window.first_above(0.0) == 1.0
    assert window.first_above(3.0) == 0.0
    window.clear()
    assert len(window) == 0


def test_medians_of_lists() -> None:
    assert median([1.0, 2.0, 10.0]) == 2.0
    assert mid([4.0, 1.0, 2.0, 3.0]) == 2.5


def test_trends_of_a_line_a_constant_and_nothing() -> None:
    line = [0.5 * t for t in range(10)]
    assert theil_sen(line) == 0.5
    assert mann_kendall(line) == pytest.approx((45 - 1) / (10 * 9 * 25 / 18) ** 0.5)
    assert mann_kendall(line[::-1]) == -mann_kendall(line)
    assert theil_sen([7.0] * 5) == 0.0 == mann_kendall([7.0] * 5)
    assert theil_sen([1.0]) == 0.0 == mann_kendall([])
