"""Numbers in sentences and in events."""

from __future__ import annotations

import math

NO_NOISE = 1e-4  # of the level: rounding leaves so much, and less is no noise to measure with


def num(value: float) -> str:
    """Three significant digits."""
    return f"{value:.3g}"


def percent(part: float) -> str:
    """A signed percentage of whole percents, one digit below ten: ``+36 %``."""
    shown = 100.0 * part
    digits = 0 if abs(shown) >= 10.0 else 1
    return f"{shown:+.{digits}f} %"


def sigmas(value: float, noise: float, unit: float) -> float | None:
    """``value`` in ``noise``; null where the noise is below 0.01 % of ``unit``: not known, or 0."""
    return size(value / noise) if noise > NO_NOISE * abs(unit) and noise > 0.0 else None


def size(value: float) -> float | None:
    """A size for an event: four digits after the point, null when it is not finite."""
    return round(value, 4) if math.isfinite(value) else None
