"""An event of the loss while it is followed: what was seen since it started."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pilot.series.chance import in_a_row
from pilot.series.gradnorm import GradNorm
from pilot.series.level import Reading
from pilot.series.limits import (
    EVENT_WINDOW,
    HIGH_SIGMA,
    RECENT,
    SHORT_HISTORY,
    SPIKE_FRAC,
    SPIKE_SIGMA,
)
from pilot.series.rolling import mid
from pilot.series.text import num, percent


def limit(reading: Reading) -> float:
    """How many sigmas above the level open an event, after ``reading.records`` records."""
    return SPIKE_SIGMA * (1.0 + SHORT_HISTORY / reading.records)


def high(loss: float, base: Reading) -> bool:
    """Whether a record counts as high: above the level by 4 sigma and 3 % of the unit."""
    return loss > base.level + max(HIGH_SIGMA * base.sigma, SPIKE_FRAC * base.unit)


@dataclass(slots=True)
class Episode:
    """An event of the loss that is being followed; ``base`` is frozen at its start."""

    key: int
    first_step: int
    base: Reading
    peak: float
    peak_step: int
    last_high: int
    rate: float
    seen: int = 0
    highs: int = 0
    run: int = 0
    longest: int = 0
    calm: int = 0
    calm_step: int | None = None
    judged: bool = False
    burst: bool = False
    reaction: float = 0.0
    lead: int | None = None
    values: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    steps: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))

    @property
    def sigmas(self) -> float:
        """Height of the peak above the level."""
        return (self.peak - self.base.level) / self.base.sigma

    @property
    def kind(self) -> str:
        """What the event looks like so far."""
        row = in_a_row(self.highs, self.longest, self.rate)
        long = self.seen > 2 * EVENT_WINDOW
        return "consecutive_spikes" if row or long or self.burst else "single_spike"

    def note(self, step: int, loss: float, grad: GradNorm) -> None:
        """Take one record in."""
        self.seen += 1
        self.values.append(loss)
        self.steps.append(step)
        self.reaction = max(self.reaction, grad.peak)
        if loss >= self.peak:
            self.peak, self.peak_step = loss, step
        if self.seen == 1:
            self.lead = grad.lead(step)
        if high(loss, self.base):
            self.last_high, self.calm, self.calm_step = step, 0, None
            self.run += 1
            self.longest = max(self.longest, self.run)
            if self.seen <= EVENT_WINDOW:
                self.highs += 1
            return
        self.run = 0
        self.calm += 1
        if self.calm == 1:
            self.calm_step = step


def sentence(episode: Episode, kind: str, back: int | None) -> str:
    """What happened, with the numbers."""
    part = (episode.peak - episode.base.level) / episode.base.unit
    base = episode.base.level
    text = f"loss {num(base)} to {num(episode.peak)} ({percent(part)}) at step {episode.peak_step}"
    if back is not None:
        return f"{text}, back at step {back}"
    if kind == "single_spike":
        return text
    return f"{text}, still {num(mid(episode.values))} at step {episode.steps[-1]}"
