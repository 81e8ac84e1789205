"""How likely a number of high records is at the run's own rate of them."""

from __future__ import annotations

from math import comb

from pilot.series.limits import CHANCE, EVENT_WINDOW


def tail(hits: int, records: int, rate: float) -> float:
    """P(X >= hits) for X binomial(records, rate): the chance of so many by the rate alone."""
    return sum(
        comb(records, k) * rate**k * (1.0 - rate) ** (records - k) for k in range(hits, records + 1)
    )


def in_a_row(hits: int, longest: int, rate: float) -> bool:
    """Whether high records of an event are spikes in a row, not the run's own noise.

    Three next to each other (``longest``), or four of the first eight (``hits``); and that by
    chance in less than one of 100,000 places at the run's own ``rate`` of high records: rate to
    the power of ``longest``, or P(X >= hits) with X binomial(8, rate). A run whose loss is nearly
    zero with frequent single mistakes has a high rate, and bursts in it are no event.
    """
    if longest >= 3 and rate**longest < CHANCE:
        return True
    return hits >= 4 and tail(hits, EVENT_WINDOW, rate) < CHANCE
