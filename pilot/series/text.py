"""Numbers in sentences and in events."""

from __future__ import annotations

import math


def num(value: float) -> str:
    """Three significant digits."""
    return f"{value:.3g}"


def percent(part: float) -> str:
    """A signed percentage of whole percents, one digit below ten: ``+36 %``."""
    shown = 100.0 * part
    digits = 0 if abs(shown) >= 10.0 else 1
    return f"{shown:+.{digits}f} %"


def size(value: float) -> float | None:
    """A size for an event: four digits after the point, null when it is not finite."""
    return round(value, 4) if math.isfinite(value) else None
