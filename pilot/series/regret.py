"""A short series that ends well above its own best: a climb too slow for a spike, or too short."""

from __future__ import annotations

from pilot.series.book import Book
from pilot.series.few import risen
from pilot.series.level import Reading
from pilot.series.limits import (
    REGRET_BLOCKS,
    REGRET_ERRORS,
    REGRET_FRAC,
    REGRET_MAX,
    REGRET_MIN,
)
from pilot.series.rolling import DIFF_TO_SIGMA, mid
from pilot.series.text import num, percent, sigmas, size
from pilot.series.types import FAIL, LOSS, MEDIUM, Event


class Regret:
    """At the end: both last of eight block medians above the lowest by 25 % of the unit and 6 e.

    e = 1.2533 s sqrt(2 / (n / 8)), s = 1.4826 median|difference| / sqrt 2 of the losses: the error
    of a difference of two block medians; 6, because the lowest of eight is chosen. Between 24 and
    768 finite records; longer series have ``slow``. Fails as ``slow_divergence``. Only where no
    other event fails (the caller's choice). NaN, inf, missing: not seen. A constant series passes.
    Cost: a list of at most 768. Source: climbs of 1.8 x over the last third of short runs with 1 to
    10 % noise are missed by every windowed rule; runs that were fine reach 0.18 of the limit.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._records: list[tuple[int, float]] = []

    def update(self, step: int, loss: float) -> None:
        """Take one finite loss in."""
        if len(self._records) <= REGRET_MAX:
            self._records.append((step, loss))

    def finish(self, reading: Reading, *, window: bool = False) -> None:
        """The series ended: is it far above its best? Few records: ``few``."""
        n = len(self._records)
        event = risen(self._records, window=window)
        if event is not None:
            self._book.open(event)
            return
        if not REGRET_MIN <= n <= REGRET_MAX:
            return
        losses = [loss for _, loss in self._records]
        edges = [n * i // REGRET_BLOCKS for i in range(REGRET_BLOCKS + 1)]
        blocks = [mid(losses[a:b]) for a, b in zip(edges, edges[1:], strict=False)]
        low = min(blocks[:-2])
        rise = min(blocks[-2:]) - low
        noise = DIFF_TO_SIGMA * mid([abs(b - a) for a, b in zip(losses, losses[1:], strict=False)])
        error = 1.2533 * noise * (2.0 * REGRET_BLOCKS / n) ** 0.5
        if rise <= max(REGRET_FRAC * reading.unit, REGRET_FRAC * low, REGRET_ERRORS * error):
            return
        first = self._records[edges[blocks.index(low) + 1]][0]
        event = Event(
            kind="slow_divergence",
            series=LOSS,
            first_step=first,
            last_step=self._records[-1][0],
            is_open=True,
            severity=FAIL,
            confidence=MEDIUM,
            size_sigma=sigmas(blocks[-1] - low, noise, reading.unit),
            size_frac=size((blocks[-1] - low) / reading.unit),
            detail=f"loss {num(low)} at best, {num(blocks[-1])} at the end "
            f"({percent((blocks[-1] - low) / reading.unit)})",
        )
        self._book.open(event)
