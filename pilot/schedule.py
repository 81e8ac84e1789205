"""The full run's learning-rate schedule as a pure function of the step.

The formulas and the step convention are those of ``transformers.optimization`` (``get_*_schedule``
with ``LambdaLR``; ``wsd`` with a linear decay): optimizer step k (1-based) uses the factor of k - 1
finished steps, so the first step of a warm-up has the rate 0 (``wsd``: the floor).
``tests/test_schedule.py`` compares every step of whole runs with the real schedulers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pilot.config import Config


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The schedule of the full run: ``schedule_steps`` is its horizon, never the pilot's length."""

    kind: str
    learning_rate: float
    schedule_steps: int
    warmup_steps: int
    min_learning_rate_frac: float = 0.0
    decay_frac: float = 0.1

    def learning_rate_at(self, step: int) -> float:
        """The learning rate that optimizer step ``step`` (1-based) uses."""
        return self.learning_rate * self.factor_at(step)

    def factor_at(self, step: int) -> float:
        """The share of the peak rate that optimizer step ``step`` (1-based) uses."""
        done, warmup, floor = step - 1, self.warmup_steps, self.min_learning_rate_frac
        if done < warmup:
            rising = done / max(1, warmup)
            return rising * (1.0 - floor) + floor if self.kind == "wsd" else rising
        if self.kind == "constant":
            return 1.0
        span = max(1, self.schedule_steps - warmup)
        if self.kind == "linear":
            factor = max(0.0, (self.schedule_steps - done) / span)
        elif self.kind == "cosine":
            factor = 0.5 * (1.0 + math.cos(math.pi * ((done - warmup) / span)))
        else:
            factor = self._wsd(done)
        return max(0.0, factor * (1.0 - floor) + floor)

    def _wsd(self, done: int) -> float:
        """Warm-up, stable, then a linear decay over the last ``decay_frac`` of the run."""
        longest = self.schedule_steps - self.warmup_steps
        decay_steps = min(max(1, round(self.decay_frac * self.schedule_steps)), max(1, longest))
        begin = self.schedule_steps - decay_steps
        return 1.0 if done < begin else max(0.0, 1.0 - (done - begin) / decay_steps)

    def is_peak(self, step: int, share: float = 0.9) -> bool:
        """Whether ``step`` lies after the warm-up with at least ``share`` of the peak rate."""
        return step > self.warmup_steps and self.factor_at(step) >= share


def full_schedule(config: Config, num_train_rows: int) -> Schedule:
    """The full run's schedule; epochs and fractions become steps here (rounded up)."""
    run = config.full_run
    steps = run.schedule_steps
    if steps is None:
        passes = float(run.epochs or 1.0)
        steps = max(1, math.ceil(passes * num_train_rows / config.rows_per_step))
    warmup = run.warmup_steps
    if warmup is None:
        warmup = math.ceil((run.warmup_frac or 0.0) * steps)
    return Schedule(
        kind=run.schedule,
        learning_rate=config.optim.learning_rate,
        schedule_steps=steps,
        warmup_steps=min(warmup, steps),
        min_learning_rate_frac=run.min_learning_rate_frac,
        decay_frac=run.decay_frac,
    )
