"""The grad norm leaves its band; it matters when the loss reacts."""

from __future__ import annotations

import math

from pilot.series.book import Book
from pilot.series.fewnorms import stands_out
from pilot.series.level import Reading
from pilot.series.limits import (
    FEW_NORMS,
    GRAD_CHANCE,
    GRAD_MIN,
    GRAD_RATIO,
    GRAD_REACH,
    GRAD_REACTION,
    GRAD_RISE,
    GRAD_TINY,
    GRAD_WINDOW,
    HELD,
    HUGE,
    REACT_FRAC,
    SPIKE_SIGMA,
)
from pilot.series.rolling import Rolling
from pilot.series.text import num, percent, size
from pilot.series.types import GRAD_NORM, HIGH, LOW, MEDIUM, NOTE, WARN, Event

REACTED = "reacted"  # the hint of an alarm that the loss followed


class GradNorm:
    """g / median64(g) > 10, or two rises of 2 x in a row that end above 4 x: a note.

    g the norm before clipping. A warning when the ratio has passed 10 and within eight records (its
    own included) the loss is 6 sigma and 20 % of the unit above its level, unless the run's own
    rates of both make such a coincidence likely: 9 (a + 0.5) (b + 0.5) / n >= 0.05, a and b the
    alarms and reactions before, n the records. Judges from 16 finite norms on (of fewer, at the
    end, ``fewnorms``); not where
    the median is below 1e-6 of the largest median so far (memorised, or a series of zeros). Norms
    above 4 x the median within eight records of each other are one event. Non-finite norms are not
    seen here (``nonfinite``). Constant series: nothing. Without a level of the loss (reinforcement
    learning) only five in a row above 10 are a note. Cost: one sorted window a step. Source: grad
    norm of a 176B run rises 0.24, 0.95, 2.4, 16, 145, 960 in the five steps before its loss does;
    alone, ratios above 10 are harmless on 84 of 25,700 records.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._window = Rolling(GRAD_WINDOW)
        self._last: tuple[float, float] = (math.inf, math.inf)
        self._largest = 0.0
        self._key: int | None = None
        self._quiet = self._records = self._alarms = self._reactions = 0
        self._ratio_now = 0.0
        self._first: list[tuple[int, float]] = []
        self._held = 0
        self._base, self._calm, self._long = math.inf, 0, 0
        self.peak = 0.0
        self.since: int | None = None

    def update(self, step: int, grad_norm: float | None, levelled: bool) -> None:
        """Judge one norm. ``peak``: the largest ratio of what is open.

        ``since``: the start of the present stretch of high norms. It goes on while norms are above
        4 x the median that was frozen at its start, for at most 64 records: the moving median
        follows a rise that stays within 32.
        """
        if self._key is not None:
            self._quiet += 1
            if self._quiet > GRAD_REACH:
                self._key, self.peak = None, 0.0
        if self.since is not None:
            self._stretch(grad_norm)
        if grad_norm is None or not math.isfinite(grad_norm):
            return
        self._records += 1
        if self._records <= FEW_NORMS[1] + 1:
            self._first.append((step, grad_norm))
        window = self._window
        if self._records > GRAD_MIN:
            middle = window.median()
            if middle > self._largest:
                self._largest = middle
            # Where the median is tiny, a ratio means nothing.
            if grad_norm > GRAD_REACTION * middle and middle > GRAD_TINY * self._largest:
                self._ratio_now = min(grad_norm / middle, HUGE)
                if levelled:
                    self._judge(step, grad_norm)
                else:
                    self._hold(step)
            else:
                self._held = 0
        window.push(grad_norm)
        self._last = (self._last[1], grad_norm)

    def _stretch(self, grad_norm: float | None) -> None:
        self._long += 1
        high = grad_norm is not None and grad_norm > GRAD_REACTION * self._base
        self._calm = 0 if high else self._calm + 1
        if self._calm > GRAD_REACH or self._long > GRAD_WINDOW:
            self.since = None

    def lead(self, step: int) -> int | None:
        """By how many steps a stretch of high norms that goes on began before ``step``."""
        return None if self.since is None or self.since > step else step - self.since

    def _hold(self, step: int) -> None:
        """Without a level of the loss: a note for five norms in a row above 10 x the median."""
        self._held = self._held + 1 if self._ratio_now > GRAD_RATIO else 0
        if self._key is not None:
            self._extend(step)
        elif self._held == HELD:
            self._open(step)

    def _judge(self, step: int, grad_norm: float) -> None:
        before, last = self._last
        rising = grad_norm >= GRAD_RISE * last and last >= GRAD_RISE * before
        if self._key is not None:
            self._extend(step)
        elif self._ratio_now > GRAD_RATIO or rising:
            self._open(step)

    def _extend(self, step: int) -> None:
        assert self._key is not None
        self._quiet = 0
        self.peak = max(self.peak, self._ratio_now)
        event = self._book.get(self._key)
        detail = event.detail if event.severity == WARN else self._sentence()
        self._book.change(self._key, last_step=step, size_frac=size(self.peak), detail=detail)

    def _open(self, step: int) -> None:
        self._quiet, self.peak = 0, self._ratio_now
        event = Event(
            kind="grad_norm_alarm",
            series=GRAD_NORM,
            first_step=step,
            last_step=step,
            severity=NOTE,
            confidence=MEDIUM if self._ratio_now > GRAD_RATIO else LOW,
            size_frac=size(self.peak),
            detail=self._sentence(),
        )
        self._key = self._book.open(event)
        self._alarms += 1
        if self.since is None:
            self.since, self._base = step, self._window.median()
            self._calm = self._long = 0

    def react(self, step: int, loss: float, reading: Reading) -> None:
        """The loss of the same record: does it react to an open event of the norm?"""
        excess = loss - reading.level
        if excess < REACT_FRAC * reading.unit or excess < SPIKE_SIGMA * reading.sigma:
            return
        rare = self._chance() < GRAD_CHANCE
        self._reactions += 1
        if self._key is None:
            return
        event = self._book.get(self._key)
        if event.severity == NOTE and self.peak > GRAD_RATIO and rare:
            self._book.change(
                self._key,
                severity=WARN,
                confidence=HIGH,
                hint=REACTED,
                size_sigma=size(excess / reading.sigma),
                last_step=step,
                grad_norm_lead_steps=max(step - event.first_step, 0),
                detail=f"{self._sentence()}; loss {num(reading.level)} to {num(loss)} "
                f"({percent(excess / reading.unit)}) at step {step}",
            )

    def finish(self) -> None:
        """The series ended: of few norms only what stands out far."""
        event = stands_out(self._first)
        if event is not None and not self._alarms:
            self._book.open(event)

    def _chance(self) -> float:
        """Expected coincidences so far, were the two independent, at their rates before now."""
        alarms = self._alarms + 0.5 - (self._key is not None)
        return (GRAD_REACH + 1) * alarms * (self._reactions + 0.5) / max(self._records, 1)

    def _sentence(self) -> str:
        return f"grad norm {num(self.peak)} x its median {num(self._window.median())}"
