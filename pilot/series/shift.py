"""Shifts of the level that are too small for a spike: a capped one-sided sum of excesses."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from pilot.series.book import Book
from pilot.series.confidence import confidence
from pilot.series.gradnorm import GradNorm
from pilot.series.level import Reading
from pilot.series.limits import (
    BLOCK,
    BURST_CAP,
    BURST_DRIFT,
    BURST_LIMIT,
    BURST_RATE,
    CUSUM_LAG,
    CUSUM_REFERENCE,
    CUSUM_START,
    HIGH_SIGMA,
    LARGE_FRAC,
    QUICK_CAP,
    QUICK_DRIFT,
    QUICK_LIMIT,
    RECENT,
    SHIFT_AFTER,
    SHIFT_FRAC,
    STEADY_CAP,
    STEADY_DRIFT,
    STEADY_LIMIT,
)
from pilot.series.rolling import Rolling, mid
from pilot.series.staying import Staying
from pilot.series.text import num, percent, size
from pilot.series.types import FAIL, LOSS, NOTE, WARN, Event

_BLOCK_ERROR = 1.2533 * (1.0 / BLOCK + 1.0 / CUSUM_REFERENCE) ** 0.5  # of two medians, in sigmas
_SURE = 3.0  # standard errors that a shift must keep after the alarm


@dataclass(slots=True)
class Rise:
    """A rise that is being followed; the level before it is frozen."""

    key: int
    first_step: int
    base: Reading
    peak: float
    lead: int | None = None
    seen: int = 0
    values: deque[float] = field(default_factory=lambda: deque(maxlen=BLOCK))
    steps: deque[int] = field(default_factory=lambda: deque(maxlen=BLOCK))


class Sum:
    """A capped one-sided sum of excesses, and the losses since it left zero."""

    __slots__ = ("_cap", "_drift", "_limit", "losses", "start", "value")

    def __init__(self, drift: float, cap: float, limit: float) -> None:
        self._drift, self._cap, self._limit = drift, cap, limit
        self.value = 0.0
        self.start = 0
        self.losses: list[float] = []

    def add(self, step: int, loss: float, z: float) -> bool:
        """Take one record in; true when the sum is above its limit."""
        new = self.value + (z if z < self._cap else self._cap) - self._drift
        if new <= 0.0:
            self.value = 0.0
            return False
        if self.value == 0.0:
            self.start = step
            self.losses = []
        self.value = new
        self.losses.append(loss)
        return new > self._limit

    def clear(self) -> None:
        """Back to zero."""
        self.value = 0.0


class Shift:
    """S = max(0, S + min(z, c) - k) for three pairs of k and c; S > h opens an event.

    z = (L - r) / s, L the loss, r the median of the 96 accepted records that lie 16 records back,
    s the noise (``level``). Quick: k = 0.75, c = 3, h = 11, for bursts and shifts of 2 sigma;
    burst: k = 1.75, c = 4, h = 6.9, for few records of 3 sigma, in a run where less than 5 % of
    the records are above 4 sigma; steady: k = 0.4, c = 2, h = 14, for shifts of 1 sigma. The caps
    make at least five, four and nine records necessary. Judges from 48 records in r on, that is
    from the 64th. While a spike is open it only follows a rise that was open before; the quick sum
    tells a burst from a single spike.
    64 records after the alarm the median of the last 32 decides: above r by 3 standard errors and
    2 % of the unit it is a ``level_shift`` (warning), by 10 % of the unit and 2 s
    ``never_recovers`` (fail); else the records were ``consecutive_spikes`` that are over, a note
    unless their median was 10 % of the unit and 4 s above r. While a downward trend leaves r above
    the level, it is blind to rises smaller than the trend. NaN, inf, missing: not seen. Constant
    series: s has a floor. Cost: one sorted window a step. Source of the limits: above the largest
    sums on healthy steps.
    """

    def __init__(self, book: Book, staying: Staying) -> None:
        self._book, self._stays = book, staying
        self._lag: deque[float] = deque()
        self._reference = Rolling(CUSUM_REFERENCE)
        self._sums = (
            Sum(QUICK_DRIFT, QUICK_CAP, QUICK_LIMIT),
            Sum(BURST_DRIFT, BURST_CAP, BURST_LIMIT),
            Sum(STEADY_DRIFT, STEADY_CAP, STEADY_LIMIT),
        )
        self.current: Rise | None = None

    def feed(self, accepted: float) -> None:
        """Take an accepted record into the reference."""
        if self.current is not None:
            return
        self._lag.append(accepted)
        if len(self._lag) > CUSUM_LAG:
            self._reference.push(self._lag.popleft())

    def burst(self, step: int, loss: float, reading: Reading) -> bool:
        """A spike has just opened: whether its records and those before it are too many."""
        if len(self._reference) < CUSUM_START:
            return False
        z = (loss - self._reference.median()) / reading.sigma
        return self._sums[0].add(step, loss, z)

    def absorb(self) -> None:
        """A spike was more than a single one: it was no shift, and a rise before is part of it."""
        self._zero()
        if self.current is not None:
            self._book.change(self.current.key, is_open=False, severity=NOTE)
            self.current = None

    def restart(self) -> None:
        """The level was seeded again: the old reference is void."""
        self._zero()
        self._lag.clear()
        self._reference.clear()

    def update(self, step: int, loss: float, reading: Reading, rate: float, grad: GradNorm) -> None:
        """Judge one record; ``rate``: the share of high records in the run so far (``spikes``).

        ``grad`` has seen the record's grad norm already.
        """
        if self.current is not None:
            self._follow(self.current, step, loss)
            return
        if len(self._reference) < CUSUM_START:
            return
        base = self._reference.median()
        z = (loss - base) / reading.sigma
        quick, burst, steady = self._sums
        if z <= STEADY_DRIFT and not (quick.value or burst.value or steady.value):
            return
        for one in self._sums:
            if one is burst and not burst.value and rate > BURST_RATE:
                continue
            if one.add(step, loss, z):
                self._open(step, one, replace(reading, level=base), grad)
                return

    def _zero(self) -> None:
        for one in self._sums:
            one.clear()

    def _open(self, step: int, one: Sum, base: Reading, grad: GradNorm) -> None:
        rise = Rise(-1, one.start, base, max(one.losses), grad.lead(one.start))
        rise.values.extend(one.losses[-BLOCK:])
        rise.steps.append(step)
        rise.key = self._book.open(self._event(rise, "level_shift", WARN))
        self.current = rise
        self._zero()

    def _follow(self, rise: Rise, step: int, loss: float) -> None:
        rise.seen += 1
        rise.values.append(loss)
        rise.steps.append(step)
        rise.peak = max(rise.peak, loss)
        if rise.seen < SHIFT_AFTER:
            return
        self.current = None
        excess = mid(rise.values) - rise.base.level
        base = rise.base
        if excess >= max(LARGE_FRAC * base.unit, 2.0 * base.sigma):
            self._book.put(rise.key, self._event(rise, "never_recovers", FAIL, closed=True))
            self._stays.add(rise.key, base)
        elif excess >= max(SHIFT_FRAC * base.unit, _SURE * _BLOCK_ERROR * base.sigma):
            self._book.put(rise.key, self._event(rise, "level_shift", WARN, closed=True))
        else:
            self._over(rise)
            return
        self.restart()

    def _over(self, rise: Rise) -> None:
        event = self._book.get(rise.key)
        far = (event.size_sigma or 0.0) >= HIGH_SIGMA
        large = far and (event.size_frac or 0.0) >= LARGE_FRAC
        back = max(rise.steps[0], event.last_step)
        self._book.change(
            rise.key,
            kind="consecutive_spikes",
            severity=WARN if large else NOTE,
            recovered_step=back,
            is_open=False,
            detail=f"{event.detail}, back by step {back}",
        )

    def finish(self) -> None:
        """The series ended: a rise that is large by now is taken to stay."""
        rise = self.current
        if rise is None or rise.seen < RECENT:
            return
        now = mid(list(rise.values)[-RECENT:]) - rise.base.level
        if now >= max(LARGE_FRAC * rise.base.unit, 2.0 * rise.base.sigma):
            self._book.put(rise.key, self._event(rise, "never_recovers", FAIL))

    def _event(self, rise: Rise, kind: str, severity: str, *, closed: bool = False) -> Event:
        base = rise.base
        now = mid(rise.values)
        excess = now - base.level
        sigmas = excess / base.sigma
        return Event(
            kind=kind,
            series=LOSS,
            first_step=rise.first_step,
            last_step=rise.steps[-1],
            is_open=not closed,
            severity=severity,
            confidence=confidence(base.records, sigmas * len(rise.values) ** 0.5, QUICK_LIMIT),
            size_sigma=size(sigmas),
            size_frac=size(excess / base.unit),
            grad_norm_lead_steps=rise.lead,
            detail=f"loss {num(base.level)} to {num(now)} ({percent(excess / base.unit)}) "
            f"between steps {rise.first_step} and {rise.steps[-1]}",
        )
