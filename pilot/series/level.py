"""The present level of the loss and its own step noise, out of winsorised records."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from pilot.series.limits import (
    MIN_RECORDS,
    NOISE_FLOOR,
    NOISE_WINDOW,
    RECENT,
    TINY,
    UNIT_FLOOR,
    WINSOR_SIGMA,
)
from pilot.series.rolling import Rolling, median, mid

_TO_SIGMA = 1.4826  # median absolute deviation to standard deviation, for a Gaussian
_PER_DIFFERENCE = 2.0**-0.5  # a difference of two records has twice their variance
_WAVES = 0.8
_NINETY = 0.5 / 1.6449  # half of the sigma that the 90 % quantile of |difference| stands for
_OF_MEDIAN, _OF_NINETY = _TO_SIGMA * _PER_DIFFERENCE, _NINETY * _PER_DIFFERENCE


@dataclass(slots=True)
class Reading:
    """What a record is judged against, in the unit of the loss, and how many records made it.

    ``start`` is the median of the first five losses.
    """

    level: float
    sigma: float
    unit: float
    records: int
    start: float


class Level:
    """m = median of the last 16 accepted records; s = the largest of four estimates of the noise.

    Accepted: a = min(L, m + 3 s), L the loss; values below are taken as they are. With
    d = L_t - L_(t-1) over the last 256 records outside events (single spikes are inside):

    1. 1.4826 median|d| / sqrt 2. Differences remove the trend of the loss.
    2. q90(|d|) / 1.645 / sqrt 2 / 2, q90 the 90 % quantile: half of what a Gaussian would give, so
       it speaks only for a series that is quiet most of the time and far out in between.
    3. 0.8 x 1.4826 median|a - median of its half| over the last 32 records: slow waves (0.8: the
       largest of several noisy estimates would else be too large).
    4. 0.002 unit, and the smallest step |d| > 0 seen: the resolution of a rounded log.

    unit = max(|m|, 0.25 x the median of the first five losses): near zero, percentages of the level
    itself mean nothing. Judges from 8 records on. NaN, inf and missing records never come here. A
    constant series has s = 0.002 unit. Cost per record: two sorted windows, O(256) moves.
    Source of the form: residuals of healthy runs are white, hence differences; contamination below
    half of the window leaves a median where it is.
    """

    def __init__(self) -> None:
        self._recent = Rolling(RECENT)
        self._differences = Rolling(NOISE_WINDOW)
        self._last: deque[float] = deque(maxlen=2 * RECENT)
        self._first: list[float] = []
        self.start = 0.0
        self._slow = 0.0
        self._previous: float | None = None
        self._held: list[float] = []
        self.records = 0
        self.reading = Reading(0.0, 0.0, 0.0, 0, 0.0)

    @property
    def ready(self) -> bool:
        """Whether there are enough records to judge the next one."""
        return self.records >= MIN_RECORDS

    def accept(self, loss: float, *, steady: bool = True) -> float:
        """Take ``loss`` (finite) in; returns it as it entered, winsorised.

        Not ``steady``: an event is open, the noise waits for what it turns out to be.
        """
        if steady:
            if self._previous is not None:
                self._differences.push(abs(loss - self._previous))
            self._previous = loss
        if self.records >= MIN_RECORDS:
            reading = self.reading
            most = reading.level + WINSOR_SIGMA * reading.sigma
            if loss > most:
                loss = most
        self.records += 1
        if self.records <= 5:
            self._first.append(loss)
            self.start = abs(mid(self._first))
        self._recent.push(loss)
        self._last.append(loss)
        if not self.records & 7:
            self._slow = self._waves()
        self._read()
        return loss

    def hold(self, loss: float) -> None:
        """Keep a raw record of an open event aside, for the noise."""
        self._held.append(loss)

    def release(self, *, single: bool) -> None:
        """The event is over: a single spike belongs to the run's noise, anything else does not."""
        if single:
            for loss in self._held:
                self._difference(loss)
        elif self._held:
            self._previous = self._held[-1]
        self._held.clear()

    def _difference(self, loss: float) -> None:
        if self._previous is not None:
            self._differences.push(abs(loss - self._previous))
        self._previous = loss

    def reseed(self, values: list[float]) -> None:
        """Start the level again from raw ``values``; the noise estimate stays."""
        self._recent.clear()
        self._last.clear()
        for value in values[-RECENT:]:
            self._recent.push(value)
            self._last.append(value)
        self._read()

    def _read(self) -> None:
        level = self._recent.median()
        unit = max(level if level >= 0.0 else -level, UNIT_FLOOR * self.start, TINY)
        sigma = max(NOISE_FLOOR * unit, self._slow, TINY)
        diffs = self._differences
        if diffs.ordered:
            middle = diffs.median()
            sigma = max(sigma, _OF_MEDIAN * middle, _OF_NINETY * diffs.quantile(0.9))
            if middle <= 1e-9 * unit:  # else the smallest step is below the median anyway
                sigma = max(sigma, diffs.first_above(1e-9 * unit))
        self.reading = Reading(level, sigma, unit, self.records, self.start)

    def _waves(self) -> float:
        values = list(self._last)
        if len(values) < 2 * RECENT:
            return 0.0
        older, newer = sorted(values[:RECENT]), sorted(values[RECENT:])
        a, b = median(older), median(newer)
        away = [abs(value - a) for value in older] + [abs(value - b) for value in newer]
        return _WAVES * _TO_SIGMA * mid(away)
