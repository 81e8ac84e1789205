"""How sure an event of the loss is."""

from __future__ import annotations

from pilot.series.types import HIGH, LOW, MEDIUM

MANY_RECORDS, FEW_RECORDS = 64, 24
REACTION = 4.0  # grad norm against its median: a reaction


def confidence(records: int, sigmas: float, limit: float, reaction: float = 0.0) -> str:
    """``high``, ``medium`` or ``low``.

    A point each for: at least 64 records before the event; at least twice the limit in sigmas; a
    grad norm of at least 4 x its median (a reaction). Two points are high, one is medium; none, or
    fewer than 24 records and no reaction, is low.
    """
    points = (records >= MANY_RECORDS) + (sigmas >= 2.0 * limit) + (reaction >= REACTION)
    if records < FEW_RECORDS and reaction < REACTION:
        return LOW
    return (LOW, MEDIUM, HIGH, HIGH)[points]
