"""Slow divergence: block medians of the loss that rise over many records."""

from __future__ import annotations

import math
from collections import deque

from pilot.series.book import Book
from pilot.series.level import Reading
from pilot.series.limits import (
    BLOCK,
    BLOCKS,
    LARGE_FRAC,
    SHORT_BLOCKS,
    SHORT_FRAC,
    STAIR_FRAC,
    TREND_FRAC,
    TREND_Z,
)
from pilot.series.rolling import mid
from pilot.series.text import num, percent, size
from pilot.series.trend import mann_kendall, theil_sen
from pilot.series.types import FAIL, HIGH, LOSS, MEDIUM, WARN, Event

_ERROR = 1.2533 * BLOCK**-0.5  # standard error of a block median, in sigmas


def _windows(blocks: list[float]) -> list[list[float]]:
    return [blocks[-count:] for count in (BLOCKS, SHORT_BLOCKS) if len(blocks) >= count]


def _rises(blocks: list[float], reading: Reading) -> bool:
    part = TREND_FRAC if len(blocks) == BLOCKS else SHORT_FRAC
    if mann_kendall(blocks) <= TREND_Z:
        return False
    return theil_sen(blocks) * (len(blocks) - 1) > part * reading.unit


class Slow:
    """Mann-Kendall Z > 3.3 over medians of 32 records, and a Theil-Sen rise.

    Over 24 of them a rise above 1.5 %, or over 16 above 3 %: slope x 23 (15) blocks, in parts of
    the unit. A warning; a fail from a rise of 10 % of
    the unit above the lowest of the blocks on. Judges from the 512th finite record on, once a
    block. Epochs over the same data end with a step down and creep up inside: after a step down (a
    difference of two blocks above 3 % of the unit and 4 standard errors, more than 3 x both its
    neighbours) only a level above the one before that step counts. An event starts with the last
    block within a quarter of the rise above the lowest, and ends when the last two are back there.
    NaN, inf, missing: not seen. A constant series has Z = 0. Cost: a median of 32 a block and 276
    comparisons. Source: none in 157,000 healthy steps.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._values: list[float] = []
        self._steps: deque[int] = deque(maxlen=BLOCKS)
        self._first = 0
        self._blocks: deque[float] = deque(maxlen=BLOCKS)
        self._ceiling = -math.inf
        self._key: int | None = None
        self._low = 0.0
        self._top = 0.0

    def update(self, step: int, loss: float, reading: Reading) -> None:
        """Take one finite loss in; judge at the end of a block."""
        if not self._values:
            self._first = step
        self._values.append(loss)
        if len(self._values) < BLOCK:
            return
        self._blocks.append(mid(self._values))
        self._steps.append(self._first)
        self._values = []
        self._stair(reading)
        if len(self._blocks) >= SHORT_BLOCKS:
            self._judge(step, reading)

    def _judge(self, step: int, reading: Reading) -> None:
        blocks = list(self._blocks)
        now = mid(blocks[-2:])
        if self._key is not None:
            self._extend(step, now, reading)
            return
        if now <= self._ceiling:
            return
        part = next((part for part in _windows(blocks) if _rises(part, reading)), None)
        if part is None:
            return
        self._low, self._top = min(blocks), now
        quarter = min(part) + 0.25 * (now - min(part))
        place = max(i for i, block in enumerate(part) if block <= quarter)
        first = list(self._steps)[place - len(part)]
        self._key = self._book.open(self._event(first, step, reading))

    def _extend(self, step: int, now: float, reading: Reading) -> None:
        assert self._key is not None
        self._top = max(self._top, now)
        event = self._book.get(self._key)
        if now <= self._low + 0.25 * (self._top - self._low):
            self._book.change(self._key, recovered_step=step, is_open=False)
            self._key = None
            return
        if now == self._top:
            self._book.put(self._key, self._event(event.first_step, step, reading))

    def _stair(self, reading: Reading) -> None:
        """Remembers the level before a step down: the middle one of the last three differences."""
        if len(self._blocks) < 4:
            return
        a, b, c, d = list(self._blocks)[-4:]
        least = max(STAIR_FRAC * reading.unit, 4.0 * _ERROR * 2.0**0.5 * reading.sigma)
        if b - c > least and b - c > 3.0 * max(a - b, c - d, 0.0):
            self._ceiling = b

    def _event(self, first: int, step: int, reading: Reading) -> Event:
        rise = self._top - self._low
        sigmas = rise / reading.sigma
        return Event(
            kind="slow_divergence",
            series=LOSS,
            first_step=first,
            last_step=step,
            is_open=True,
            severity=FAIL if rise >= LARGE_FRAC * reading.unit else WARN,
            confidence=HIGH if sigmas >= 8.0 * _ERROR else MEDIUM,
            size_sigma=size(sigmas),
            size_frac=size(rise / reading.unit),
            detail=f"loss rises slowly, {num(self._low)} to {num(self._top)} "
            f"({percent(rise / reading.unit)}) between steps {first} and {step}",
        )
