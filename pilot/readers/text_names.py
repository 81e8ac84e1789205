"""Numbers and named values as text logs print them."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.readers.fields import EPOCH_MEAN_TIER, column
from pilot.readers.points import ColumnKey, Points
from pilot.series.types import GRAD_NORM, LOSS

NUMBER = (
    r"[-+]?(?:\d+(?:,\d{3})*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
    r"|(?:[nN][aA][nN]|[iI][nN][fF](?:inity)?)(?![a-zA-Z]))"
)
"""A number, with thousands separators, or a literal nan / inf in any case."""

Found = list[tuple[ColumnKey, float]]
"""The values of a line by the quantity that they belong to."""

_UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


def number(text: str) -> float | None:
    """Return the value of a printed number; ``None`` for ``n/a`` and anything else.

    Understands ``1,024``, ``1.2E+00``, ``1.4M``, nan and inf in any case, ``-nan``, ``nan(ind)``.
    """
    try:
        return float(text)
    except ValueError:
        pass
    text = text.strip().rstrip("%,;|").replace(",", "")
    scale = _UNITS.get(text[-1:].upper())
    if scale is not None:
        text = text[:-1]
    if text.lower().lstrip("+-").startswith("nan("):
        return float("nan")
    try:
        return float(text) * (scale or 1.0)
    except ValueError:
        return None


def find(pairs: Iterable[tuple[str, str]]) -> Found:
    """Return the values of printed pairs (key, number) whose key names a quantity."""
    found: Found = []
    for key, text in pairs:
        place = column(key)
        if place is not None and (value := number(text)) is not None:
            found.append((place, value))
    return found


def has(found: Found, *names: str) -> bool:
    """Return whether a training value of one of the names is among them."""
    return any(place.name in names and not place.is_validation for place, _ in found)


def as_epoch_mean(key: ColumnKey) -> ColumnKey:
    """Return the key of a training loss that is a mean over an epoch; other keys as they are."""
    if key.is_validation or key.name != LOSS:
        return key
    return key._replace(tier=EPOCH_MEAN_TIER)


def add(points: Points, step: float | None, found: Found) -> bool:
    """Add the values as a row if they say anything of the training or hold a validation loss."""
    is_point = has(found, LOSS, GRAD_NORM) or any(place.is_validation for place, _ in found)
    if is_point:
        points.row(step)
        for place, value in found:
            points.put(place, value)
    return is_point
