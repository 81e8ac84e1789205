"""The stretches of a pilot (warm-up, peak, decay, cool-down branch) with their rates. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pilot.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A stretch of steps (both ends included) and the learning rates at its borders."""

    name: str
    first_step: int
    last_step: int
    first_learning_rate: float
    last_learning_rate: float

    @property
    def num_steps(self) -> int:
        """How many steps it has."""
        return self.last_step - self.first_step + 1


def cooldown_rate(schedule: Schedule, stop: int, cooldown: int, index: int) -> float:
    """The rate of cool-down step ``index`` (1-based): linear from the rate at ``stop`` to 0.

    The last step still moves (rate/cooldown); the rate is 0 after it.
    """
    return schedule.learning_rate_at(stop) * (cooldown - index + 1) / (cooldown + 1)


def make_segments(schedule: Schedule, start: int, stop: int, cooldown: int) -> tuple[Segment, ...]:
    """The segments of a pilot from ``start`` to ``stop`` and its cool-down of so many steps."""
    rate = schedule.learning_rate_at
    borders: list[tuple[str, int, int]] = []
    warmup = schedule.warmup_steps
    if start < warmup:
        borders.append(("warm-up", start + 1, min(warmup, stop)))
    first = max(start, warmup) + 1
    peak_last = max((s for s in range(first, stop + 1) if schedule.is_peak(s)), default=first - 1)
    if peak_last >= first:
        borders.append(("peak", first, peak_last))
    if peak_last < stop and stop >= first:
        borders.append(("decay", peak_last + 1, stop))
    segments = [
        Segment(
            name=name,
            first_step=a,
            last_step=b,
            first_learning_rate=rate(a),
            last_learning_rate=rate(b),
        )
        for name, a, b in borders
    ]
    if cooldown:
        segments.append(
            Segment(
                name="cool-down",
                first_step=stop + 1,
                last_step=stop + cooldown,
                first_learning_rate=cooldown_rate(schedule, stop, cooldown, 1),
                last_learning_rate=cooldown_rate(schedule, stop, cooldown, cooldown),
            )
        )
    return tuple(segments)
