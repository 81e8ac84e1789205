"""Damage in the first records: the loss rises far above its start and stays there."""

from __future__ import annotations

import math
from collections import deque

from pilot.series.book import Book
from pilot.series.limits import (
    BACK_FRAC,
    EARLY_HOLD,
    EARLY_RATIO,
    EARLY_RECORDS,
    EARLY_SHORT,
    EARLY_SIGMA,
    EARLY_SMOOTH,
    EARLY_START,
    LATE_HOLD,
    LATE_POWER,
    UNIT_FLOOR,
)
from pilot.series.rolling import DIFF_TO_SIGMA, Rolling, mid
from pilot.series.text import num, sigmas, size
from pilot.series.types import FAIL, HIGH, LOSS, LOW, MEDIUM, WARN, Event
from pilot.series.window import is_window


class Early:
    """median(last 4 losses) > r x max(1.5, exp(5 s)), and > r + 25 % of the first, three in a row.

    r = the lowest of the first loss and the medians of four so far, s = 1.4826 median|difference|
    / sqrt 2 of ln loss over the n differences so far, x (1 + 3 / n) because they are few. Judges
    from the sixth to the 64th record. A rise that begins in the first 16 is ``early_damage``; one
    that begins later, is no spike and reaches r x max(1.8, exp(7.5 s)), eight in a row, is
    ``slow_divergence``. An event ends when the smoothed loss is within 5 % of r; within the 64
    records it may open again. A warning; at the end of the series one that has not ended fails.
    Only while all losses are above zero, and not in a window out of a run, whose first records are
    no start (``window``). NaN, inf and missing records do not come here; a constant
    series passes. Cost: a median of four a step while it judges or an event is open, else nothing.
    Source: public logs that jump after 1 to 6 good records and stay above 1.6 x the start; a
    transient of one record (6.9 to 12) is normal.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._recent: deque[float] = deque(maxlen=EARLY_SMOOTH)
        self._records: list[tuple[int, float]] = []
        self._noise = Rolling(EARLY_RECORDS)
        self._reference = math.inf
        self.busy = True  # whether it still judges, or follows an event
        self.window = False
        self._hold = 0
        self._key: int | None = None
        self._rise = (0, 0)
        self._top = (0.0, 0)
        self._back: int | None = None

    def update(self, step: int, loss: float, *, spiking: bool) -> None:
        """Judge one finite loss; ``spiking``: an event of ``spikes`` is open."""
        following = self._key is not None and self._back is None
        if loss <= 0.0 or (len(self._records) >= EARLY_RECORDS and not following):
            self.busy = False  # for good
            return
        if len(self._records) < EARLY_RECORDS:
            if self._records:
                last, before = self._records[-1]
                if len(self._records) == 1 and is_window(last, step - last):
                    self.busy, self.window = False, True
                    return
                self._noise.push(abs(math.log(loss) - math.log(before)))
            self._records.append((step, loss))
        self._recent.append(loss)
        smooth = mid(self._recent)
        if following:
            self._follow(step, loss, smooth)
            return
        if len(self._records) == 1 or len(self._recent) == EARLY_SMOOTH:
            self._reference = min(self._reference, smooth)
        if len(self._recent) == EARLY_SMOOTH:
            self._judge(step, smooth, spiking)

    def _sigma(self) -> float:
        return DIFF_TO_SIGMA * self._noise.median() if len(self._noise) else 0.0

    def _judge(self, step: int, smooth: float, spiking: bool) -> None:
        sigmas = EARLY_SIGMA * (1.0 + EARLY_SHORT / len(self._noise)) * self._sigma()
        ratio = max(EARLY_RATIO, math.exp(min(sigmas, 50.0)))
        bound = max(ratio * self._reference, self._reference + UNIT_FLOOR * self._records[0][1])
        self._hold = self._hold + 1 if smooth > bound else 0
        if self._hold < EARLY_HOLD:
            return
        if self._key is not None:
            self._back = None
            self._follow(step, self._recent[-1], smooth)
            return
        place = self._begin()
        far = smooth > ratio**LATE_POWER * self._reference and self._hold >= LATE_HOLD
        if place >= EARLY_START and (spiking or not far):
            return
        self._rise = (self._records[place][0], place)
        value, at = max((loss, -at) for at, loss in self._records[place:])
        self._top = (value, -at)
        self._key = self._book.open(self._event(step, smooth))

    def _begin(self) -> int:
        """The place of the first record of the run of high records that ends now."""
        bound = EARLY_RATIO * self._reference
        place = len(self._records) - 1
        low = 0
        while place > 0 and low < 2:
            place -= 1
            low = low + 1 if self._records[place][1] <= bound else 0
        return place + low

    def _follow(self, step: int, loss: float, smooth: float) -> None:
        if loss > self._top[0]:
            self._top = (loss, step)
        if smooth <= (1.0 + BACK_FRAC) * self._reference:
            self._back, self._hold = step, 0
        assert self._key is not None
        self._book.put(self._key, self._event(step, smooth))

    def finish(self) -> None:
        """The series ended: damage that is still there stays."""
        if self._key is not None and self._back is None:
            self._book.change(self._key, severity=FAIL)

    def _event(self, step: int, smooth: float) -> Event:
        sigma = self._sigma()
        rise = math.log(self._top[0]) - math.log(self._reference)
        end = f"back at step {step}" if self._back else f"{num(smooth)} at step {step}"
        sure = rise > 2.0 * EARLY_SIGMA * sigma
        many = HIGH if len(self._records) >= 2 * EARLY_START else MEDIUM
        return Event(
            kind="early_damage" if self._rise[1] < EARLY_START else "slow_divergence",
            series=LOSS,
            first_step=self._rise[0],
            last_step=step,
            recovered_step=self._back,
            is_open=self._back is None,
            severity=WARN,
            confidence=many if sure else LOW,
            size_sigma=sigmas(rise, sigma, 1.0),
            size_frac=size(self._top[0] / self._reference - 1.0),
            detail=f"loss {num(self._reference)} near the start, {num(self._top[0])} at step "
            f"{self._top[1]}, {end}",
        )
