"""Spikes: single, in a row, or the start of a level from which the loss never comes back."""

from __future__ import annotations

import math
from dataclasses import replace

from pilot.series.book import Book
from pilot.series.confidence import confidence
from pilot.series.episode import Episode, high, limit, sentence
from pilot.series.gradnorm import GradNorm
from pilot.series.level import Reading
from pilot.series.limits import (
    BACK_FRAC,
    BACK_SIGMA,
    CALM_RUN,
    EVENT_WINDOW,
    HUGE_LIMITS,
    JUDGE_AFTER,
    LARGE_FRAC,
    PAIR_CHANCE,
    RECENT,
    SHIFT_FRAC,
    SPIKE_FRAC,
    WATCH,
    WORSE_THAN_START,
)
from pilot.series.rolling import mid
from pilot.series.staying import Staying
from pilot.series.text import size
from pilot.series.types import FAIL, LOSS, LOW, NOTE, WARN, Event


class Spikes:
    """z = (L - m) / s > 6 (1 + 8/n) and L - m > 3 % of the unit open an event.

    L the loss, m and s level and noise (``level``), n the records behind them, from 8 on. Level,
    noise and unit are then frozen. A record of the event is *high* above m + max(4 s, 3 %).

    - Three records in a row, not high, end it, after eight records at the earliest:
      ``consecutive_spikes`` with three high ones next to each other or four of the first eight,
      more than the run's own rate explains (``chance``), when the quick sum of ``shift`` alarms
      within them, or when it lasts more than 16; else ``single_spike``.
    - Within 64 records of the end of an earlier event that was no single spike, the level is the
      lower of both: the one before the first of a series of events.
    - An event of more than eight records ends when the median of its last eight is back within
      m + max(s, 5 % of the unit), and within half of the peak.
    - Not ended after 64 records: ``never_recovers`` when the median of 16 is 10 % of the unit above
      m, else ``level_shift``. The level is then seeded again, so that
      later events are seen; a late return (of the median of 16, to max(s, 2 %)) within 256 records
      still makes it ``consecutive_spikes``. ``staying`` follows how long it lasts.

    A single spike is a note; a warning from 100 % of the unit, 3 x the limit, twice the largest
    single spike before it, and 1.25 x the first level on (the latter not for two records next to
    each other in a run whose rate of high records makes that rare). Spikes in a row are a warning
    from 10 % of the unit on; ``level_shift`` is a warning, ``never_recovers`` fails.

    NaN, inf and missing records do not come here; an event goes on over them. Constant series: see
    ``level``. Cost: a few comparisons a step, while an event is open a median of 16.
    """

    def __init__(self, book: Book, staying: Staying) -> None:
        self._book, self._stays = book, staying
        self._watched: list[Episode] = []
        self._highs = self._records = 0
        self._largest = 0.0
        self._before, self._since = math.inf, 0
        self.current: Episode | None = None
        self.closed: str | None = None

    def update(self, step: int, loss: float, reading: Reading, grad: GradNorm) -> None:
        """Judge one record; ``grad`` has seen the record's grad norm already."""
        self.closed = None
        self._since += 1
        self._records = reading.records
        if self._watched:
            self._watch(step, loss)
        if self.current is not None:
            self._follow(self.current, step, loss, grad)
            return
        excess = loss - reading.level
        if excess > SPIKE_FRAC * reading.unit and high(loss, reading):
            self._highs += 1
            if excess > limit(reading) * reading.sigma:
                self._open(step, loss, reading, grad)

    @property
    def rate(self) -> float:
        """The share of high records so far."""
        return self._highs / max(self._records, 1)

    def burst(self) -> None:
        """The open event is more than a single spike, whatever the count of high records says."""
        if self.current is not None and not self.current.burst:
            self.current.burst = True
            self._book.put(self.current.key, self._event(self.current, self.current.kind))

    def seed(self) -> list[float] | None:
        """The records to seed the level with, once, after an event was judged to stay."""
        episode = self.current
        if episode is None or not episode.judged:
            return None
        self.current, self.closed = None, "never_recovers"
        self._watched.append(episode)
        self._stays.add(episode.key, episode.base)
        return list(episode.values)

    def _open(self, step: int, loss: float, reading: Reading, grad: GradNorm) -> None:
        rate = (self._highs - 0.5) / reading.records
        if self._since <= JUDGE_AFTER and self._before < reading.level:
            reading = replace(reading, level=self._before)
        episode = Episode(-1, step, reading, loss, step, step, rate)
        episode.note(step, loss, grad)
        episode.key = self._book.open(self._event(episode, "single_spike"))
        self.current = episode

    def _follow(self, episode: Episode, step: int, loss: float, grad: GradNorm) -> None:
        episode.note(step, loss, grad)
        if episode.seen >= EVENT_WINDOW and self._back(episode):
            self._close(episode)
        elif episode.seen >= JUDGE_AFTER:
            episode.judged = True
            self._book.put(episode.key, self._event(episode, self._staying(episode)))
        elif episode.seen <= EVENT_WINDOW or loss == episode.peak:
            self._book.put(episode.key, self._event(episode, episode.kind))

    def _close(self, episode: Episode) -> None:
        kind = episode.kind
        back = episode.calm_step
        if back is not None and episode.seen > EVENT_WINDOW:
            back = max(back, episode.steps[-EVENT_WINDOW])
        self._book.put(episode.key, self._event(episode, kind, back=back))
        self.closed = kind
        if kind != "single_spike":
            self._before, self._since = episode.base.level, 0
        if kind == "single_spike":
            self._highs += episode.highs - 1
            self._largest = max(self._largest, episode.sigmas)
        self.current = None

    def _back(self, episode: Episode) -> bool:
        base = episode.base
        if episode.calm < CALM_RUN:
            return False
        if episode.seen == EVENT_WINDOW:
            return True
        count, part = (RECENT, SHIFT_FRAC) if episode.judged else (EVENT_WINDOW, BACK_FRAC)
        rest = mid(list(episode.values)[-count:]) - base.level
        near = max(BACK_SIGMA * base.sigma, part * base.unit)
        return rest <= min(near, 0.5 * (episode.peak - base.level))

    def _watch(self, step: int, loss: float) -> None:
        for episode in list(self._watched):
            episode.calm = CALM_RUN
            episode.seen += 1
            episode.values.append(loss)
            episode.steps.append(step)
            if self._back(episode):
                back = episode.steps[len(episode.steps) // 2]
                event = self._event(episode, "consecutive_spikes", back=back)
                self._book.put(episode.key, event)
                self._watched.remove(episode)
            elif episode.seen >= WATCH:
                self._watched.remove(episode)

    def _staying(self, episode: Episode) -> str:
        rise = mid(episode.values) - episode.base.level
        return "never_recovers" if rise >= LARGE_FRAC * episode.base.unit else "level_shift"

    def finish(self) -> None:
        """The series ended: an undecided event stays open, as what it looks like so far."""
        episode = self.current
        if episode is None:
            return
        kind = self._book.get(episode.key).kind
        if episode.seen >= RECENT and self._staying(episode) == "never_recovers":
            kind = "never_recovers"
        calm = episode.calm >= (1 if kind == "single_spike" else CALM_RUN)
        back = episode.calm_step if calm and episode.seen <= EVENT_WINDOW else None
        undecided = back is None or episode.calm < CALM_RUN
        event = self._event(episode, kind, back=back, undecided=undecided)
        if back is None and episode.seen < CALM_RUN:  # the log ends with it
            event = replace(event, confidence=LOW)
        self._book.put(episode.key, event)

    def _severity(self, episode: Episode, kind: str, part: float) -> str:
        if kind == "never_recovers":
            return FAIL
        if kind == "level_shift":
            return WARN
        if kind == "consecutive_spikes":
            return WARN if part >= LARGE_FRAC else NOTE
        huge = max(HUGE_LIMITS * limit(episode.base), 2.0 * self._largest)
        worse = episode.peak >= WORSE_THAN_START * episode.base.start
        worse = worse or (episode.longest >= 2 and episode.rate**episode.longest < PAIR_CHANCE)
        return WARN if worse and part >= 1.0 and episode.sigmas >= huge else NOTE

    def _event(
        self, episode: Episode, kind: str, *, back: int | None = None, undecided: bool = False
    ) -> Event:
        base = episode.base
        sigmas = episode.sigmas
        part = (episode.peak - base.level) / base.unit
        severity = self._severity(episode, kind, part)
        last = episode.last_high if kind == "single_spike" or back else episode.steps[-1]
        stays = JUDGE_AFTER if episode.judged else 0  # records that say the same
        sure = confidence(base.records + stays, sigmas, limit(base), episode.reaction)
        return Event(
            kind=kind,
            series=LOSS,
            first_step=episode.first_step,
            last_step=last,
            recovered_step=back,
            is_open=undecided or (back is None and not episode.judged),
            severity=severity,
            confidence=sure,
            size_sigma=size(sigmas),
            size_frac=size(part),
            grad_norm_lead_steps=episode.lead,
            detail=sentence(episode, kind, back),
        )
