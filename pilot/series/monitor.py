"""The online engine: one record in, the events that opened, changed or closed out."""

from __future__ import annotations

import math

from pilot.series.book import Book
from pilot.series.early import Early
from pilot.series.episode import high
from pilot.series.gradnorm import GradNorm
from pilot.series.gradtrend import GradTrend
from pilot.series.level import Level
from pilot.series.limits import EVENT_WINDOW, HUGE, REACT_FRAC, REGRET_MAX
from pilot.series.nonfinite import NonFinite
from pilot.series.objective import Objective
from pilot.series.point import Point
from pilot.series.regret import Regret
from pilot.series.shift import Shift
from pilot.series.slow import Slow
from pilot.series.spikes import Spikes
from pilot.series.staying import Staying
from pilot.series.types import FAIL, NOTE, Event
from pilot.series.zero import Zero

__all__ = ["Monitor", "Point"]

_OF_LEVEL = frozenset(
    {
        "single_spike",
        "consecutive_spikes",
        "never_recovers",
        "level_shift",
        "slow_divergence",
        "early_damage",
        "grad_norm_alarm",
        "grad_norm_trend",
    }
)


class Monitor:
    """Feeds every record to the detectors, in a fixed order, and keeps their events.

    ``objective`` is a trace's (``types``). A run and its log give the same events: a whole series
    is judged by feeding it here. The order of the records is the order of their steps.
    """

    def __init__(self, objective: str = "lm") -> None:
        self._book = book = Book()
        self._objective = Objective(objective)
        self._level = Level()
        self._nonfinite = NonFinite(book, levelled=self._objective.levelled)
        self._zero = Zero(book)
        self._early = Early(book)
        self._staying = Staying(book)
        self._spikes = Spikes(book, self._staying)
        self._shift = Shift(book, self._staying)
        self._slow = Slow(book)
        self._regret = Regret(book)
        self._grad = GradNorm(book)
        self._trend = GradTrend(book)
        self._finite = 0

    @property
    def events(self) -> tuple[Event, ...]:
        """All events so far, in order of first step."""
        return self._book.events()

    @property
    def levelled(self) -> bool:
        """Whether the loss has a level to compare with (not: a policy loss)."""
        return self._objective.levelled

    @property
    def has_open(self) -> bool:
        """Whether an event of the loss is still undecided: single, in a row, or for good."""
        return self._spikes.current is not None or self._shift.current is not None

    def update(self, point: Point) -> tuple[Event, ...]:
        """Judge one record; the events that it opened, changed or closed."""
        step, loss, grad_norm = point[:3]
        objective = self._objective
        self._nonfinite.update(point)
        if grad_norm is not None and HUGE < grad_norm < math.inf:
            grad_norm = HUGE
        self._grad.update(step, grad_norm, objective.levelled)
        if loss is not None and math.isfinite(loss):
            if not -HUGE <= loss <= HUGE:
                loss = HUGE if loss > 0.0 else -HUGE
            self._finite += 1
            if loss <= 0.0 and objective.see(loss, point.grad_norm, self._finite):
                self._void()
            if not self._dead(point, loss) and objective.levelled:
                self._judge(point, loss)
        return self._book.flush() if self._book.changed else ()

    def _dead(self, point: Point, loss: float) -> bool:
        zero, level = self._zero, self._level
        if loss > 0.0 and not zero.runs:
            zero.nonzero = True
            return False
        dead = zero.update(point.step, loss, point.grad_norm, level.start, level.reading)
        zero.judge(self._objective.levelled)
        return dead

    def _judge(self, point: Point, loss: float) -> None:
        step, level, spikes, shift = point.step, self._level, self._spikes, self._shift
        if self._early.busy:
            self._early.update(step, loss, spiking=spikes.current is not None)
        if level.ready:
            reading = level.reading
            spikes.update(step, loss, reading, self._grad)
            episode = spikes.current
            if episode is None or shift.current is not None:
                shift.update(step, loss, reading, spikes.rate, self._grad)
            elif episode.seen <= EVENT_WINDOW and shift.burst(step, loss, reading):
                spikes.burst()
            if loss - reading.level >= REACT_FRAC * reading.unit and (
                episode is None or episode.seen <= EVENT_WINDOW
            ):
                self._grad.react(step, loss, reading)
        self._learn(loss)
        if self._staying.open:
            self._staying.update(step, level.reading.level)
        if level.records <= REGRET_MAX:
            self._regret.update(step, loss)
        self._slow.update(step, loss, level.reading)
        if point.grad_norm is not None:
            self._trend.update(step, point.grad_norm, loss)

    def _learn(self, loss: float) -> None:
        """Take the record into level and noise, as far as no open event claims it."""
        level, spikes = self._level, self._spikes
        if spikes.current is None and spikes.closed is None:
            self._shift.feed(level.accept(loss))
            return
        values = spikes.seed()
        episode = spikes.current
        if episode is not None or spikes.closed is not None:
            level.hold(loss)
        if spikes.closed is not None:
            level.release(single=spikes.closed == "single_spike")
            if spikes.closed != "single_spike":
                self._shift.absorb()
        if values is not None:
            level.reseed(values)
            self._shift.restart()
        elif episode is None or not high(loss, episode.base):
            self._shift.feed(level.accept(loss, steady=False))

    def _void(self) -> None:
        for key, event in self._book.items():
            if event.kind in _OF_LEVEL and event.severity != NOTE:
                self._book.change(key, severity=NOTE, is_open=False)
        self._spikes.current = self._shift.current = None
        self._staying.open.clear()
        self._nonfinite.levelled = False

    def finish(self) -> tuple[Event, ...]:
        """The series ended: decide what can be decided; what changed. Call it once."""
        levelled = self._objective.levelled
        self._nonfinite.finish()
        self._zero.finish(levelled, broken=self._nonfinite.broken)
        if levelled:
            self._early.finish()
            self._spikes.finish()
            self._shift.finish()
            self._staying.finish()
            self._grad.finish()
            if all(event.severity != FAIL for event in self._book.events()):
                self._regret.finish(self._level.reading, window=self._early.window)
        return self._book.flush()
