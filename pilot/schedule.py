"""The full run's learning-rate schedule as a pure function of the step.

The formulas and the step convention are those of ``transformers.optimization`` (``get_*_schedule``
with ``LambdaLR``; ``wsd`` with a linear decay): optimizer step k (1-based) uses the factor of k - 1
finished steps, so the first step of a warm-up has the rate 0 (``wsd``: the floor).
``tests/test_schedule.py`` compares every step of whole runs with the real schedulers.

``kind="trainer"`` has no formula: its rates are a table, measured from the Trainer's own scheduler
before the run (``pilot/engines/hf/rates.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pilot.config import Config

TRAINER = "trainer"  # the kind whose rates are a table
# A rate this near to the highest one has reached it: recursive schedulers round at every step.
_REACHED = 1.0 - 1e-6
RATE_TOLERANCE = 1e-6  # relative: see `same_rate`


@dataclass(frozen=True, kw_only=True)
class RateTable:
    """The rates of steps 1, 2, ... that a Trainer's own scheduler plans; NaN: not known.

    They belong to a configuration with ``optim.learning_rate = base_rate``. ``unknown`` says why
    the run's rates may differ from them; empty when they are the plan.
    """

    rates: tuple[float, ...]
    base_rate: float
    unknown: str = ""

    @property
    def peak(self) -> float:
        """The highest known rate; 0.0 without any."""
        return max((rate for rate in self.rates if math.isfinite(rate)), default=0.0)

    @property
    def warmup_steps(self) -> int:
        """The steps before the first one at the highest rate."""
        least = self.peak * _REACHED
        return next((i for i, rate in enumerate(self.rates) if rate >= least), 0)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The schedule of the full run: ``schedule_steps`` is its horizon, never the pilot's length.

    Only ``kind="trainer"`` has ``rates`` (of steps 1, 2, ..., as far as a pilot needs them), their
    ``peak`` in the whole run, and ``unknown``: why the run's rates may differ from them.
    ``peak_frac`` is the largest share of the peak rate that is left to train at: 1, but for a run
    that goes on from a step behind its peak.
    """

    kind: str
    learning_rate: float
    schedule_steps: int
    warmup_steps: int
    min_learning_rate_frac: float = 0.0
    decay_frac: float = 0.1
    rates: tuple[float, ...] = ()
    peak: float = 0.0
    unknown: str = ""
    peak_frac: float = 1.0

    def learning_rate_at(self, step: int) -> float:
        """The learning rate that optimizer step ``step`` (1-based) uses.

        Raises:
            ValueError: a table without this step.
        """
        if self.kind == TRAINER:
            return self._table_rate(step)
        return self.learning_rate * self.factor_at(step)

    def factor_at(self, step: int) -> float:
        """The share of the peak rate that optimizer step ``step`` (1-based) uses."""
        if self.kind == TRAINER:
            return self._table_rate(step) / self.peak if self.peak else 0.0
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

    def _table_rate(self, step: int) -> float:
        if not 1 <= step <= len(self.rates):
            known = f"known are those of steps 1 to {len(self.rates)}"
            raise ValueError(f"the Trainer's own rate of step {step} was not measured; {known}")
        return self.rates[step - 1]

    def knows(self, step: int) -> bool:
        """Whether the rate of ``step`` is planned: always for a formula."""
        if self.kind != TRAINER:
            return step >= 1
        return 1 <= step <= len(self.rates) and not math.isnan(self.rates[step - 1])

    @property
    def last_planned(self) -> int:
        """The last step of the run whose rate can be asked for."""
        return (
            min(self.schedule_steps, len(self.rates))
            if self.kind == TRAINER
            else (self.schedule_steps)
        )

    @property
    def peak_rate(self) -> float:
        """The highest rate of the run."""
        return self.peak if self.kind == TRAINER else self.learning_rate

    def up_to(self, step: int) -> Schedule:
        """The same schedule; of a table only the rates up to ``step``."""
        return replace(self, rates=self.rates[: max(0, step)])

    def is_peak(self, step: int, share: float = 0.9) -> bool:
        """Whether ``step`` lies after the warm-up with at least ``share`` of the largest rate."""
        return step > self.warmup_steps and self.factor_at(step) >= share * self.peak_frac

    def left_after(self, start_step: int) -> Schedule:
        """The same schedule for a run that goes on after ``start_step``.

        ``is_peak`` then speaks of the rates that are left: none rises after the warm-up. No rate is
        changed.
        """
        if not start_step:
            return self
        if self.kind == TRAINER:  # of any shape: it may rise again
            left = [rate for rate in self.rates[start_step:] if math.isfinite(rate)]
            return replace(self, peak_frac=max(left, default=0.0) / self.peak)
        return replace(self, peak_frac=self.factor_at(max(start_step, self.warmup_steps) + 1))


def full_schedule(config: Config, num_train_rows: int, table: RateTable | None = None) -> Schedule:
    """The full run's schedule; epochs and fractions become steps here (rounded up).

    Args:
        config: the configuration of the run, or of an arm.
        num_train_rows: from which epochs become steps.
        table: the rates of ``full_run.schedule: trainer``, measured for the baseline. They scale
            with the learning rate. Without a table that schedule has its length and no rates.
    """
    run = config.full_run
    steps = run.schedule_steps
    if steps is None:
        steps = steps_of_epochs(config, float(run.epochs or 1.0), num_train_rows)
    if run.schedule == TRAINER:
        return table_schedule(config.optim.learning_rate, steps, table)
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


def steps_of_epochs(config: Config, epochs: float, num_train_rows: int) -> int:
    """Optimizer steps of ``epochs`` passes over the rows, rounded up.

    A Trainer ends every epoch with a step of its own, short in rows and in micro-batches where they
    do not divide evenly; pilot's own loop goes on into the next pass.
    """
    batch, answers = config.batch, config.engine.answers
    if config.engine.name != "transformers":
        return max(1, math.ceil(epochs * num_train_rows / config.rows_per_step))
    if answers and answers.get("batch") == batch.model_dump(exclude={"sequence_length"}):
        per_epoch = int(answers["steps_per_epoch"])
    else:
        width = batch.micro_batch_size * config.launcher.num_processes
        micro_batches = -(-num_train_rows // width)
        per_epoch = max(1, -(-micro_batches // batch.grad_accum_steps))
    return max(1, math.ceil(epochs * per_epoch))


def table_schedule(learning_rate: float, steps: int, table: RateTable | None) -> Schedule:
    """A schedule of ``steps`` steps whose rates are ``table``, scaled to ``learning_rate``."""
    if table is None:
        table = RateTable(rates=(), base_rate=learning_rate, unknown="not measured")
    scale = learning_rate / table.base_rate
    return Schedule(
        kind=TRAINER,
        learning_rate=learning_rate,
        schedule_steps=steps,
        warmup_steps=min(table.warmup_steps, steps),
        rates=scaled(table.rates, scale),
        peak=table.peak * scale,
        unknown=table.unknown,
    )


def same_rate(one: float, other: float, peak: float) -> bool:
    """Whether two learning rates are one, as far as a float32 tensor can hold them.

    Rounding to float32 changes a number by at most 2**-24 = 6e-8 of it; schedulers that multiply
    their last rate do so at every step. 1e-6 leaves room for that and is far below what one step
    too many changes in a warm-up. Near 0 the difference counts against ``peak``.
    """
    if not (math.isfinite(one) and math.isfinite(other)):
        return one == other or (math.isnan(one) and math.isnan(other))
    return one == other or abs(one - other) <= max(
        RATE_TOLERANCE * max(abs(one), abs(other)), 1e-12 * peak
    )


def scaled(rates: Sequence[float], scale: float) -> tuple[float, ...]:
    """``rates`` times ``scale``; the same floats for 1."""
    return tuple(rates) if scale == 1.0 else tuple(rate * scale for rate in rates)
