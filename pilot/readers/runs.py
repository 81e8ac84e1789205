"""Where one run ends and the next begins, what a resume replaces, and what merely repeats.

The rule looks at the rows with a loss (without any: the grad norm, then the validations), in file
order; a *drop* is a step lower than the one before. The step is the trainer's; in a log without
steps the epoch stands in for it.

- *Straggler*: one row back, and the next is beyond the highest step again. Sorted into its place.
- *Several writers*: many small drops (at most 5 logging intervals each; at least 5 drops and 2 % of
  the rows). Two ranks wrote one file; rows are joined by step.
- *Steps within an epoch*: the step falls back to the start while the epoch goes up. Counted on.
- *New run*: the step falls to the start (at most 1.5 logging intervals, or the run's first step),
  or the epoch starts over. A log that begins late and falls back to its first step with the same
  learning rate there is a resume.
- *Resume*: any other drop. From its first step on the later attempt wins.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

RUN, RESUME, EPOCH = "run", "resume", "epoch"
WRITER_INTERVALS, MIN_WRITER_DROPS, WRITER_FRAC = 5, 5, 0.02
START_INTERVALS = 1.5


@dataclass(frozen=True, kw_only=True)
class Line:
    """The rows that decide: index in the log, step, epoch and learning rate (NaN: unknown)."""

    rows: Ints
    steps: Ints
    epochs: Floats
    rates: Floats


@dataclass(frozen=True, kw_only=True)
class Cut:
    """From row ``row`` on: a new run, a resume at ``step``, or a step count that starts over."""

    kind: str
    row: int
    step: int
    before: int


@dataclass
class Cuts:
    """The cuts in order of rows, and what was found besides."""

    cuts: list[Cut] = field(default_factory=list)
    num_stragglers: int = 0
    several_writers: bool = False


def interval(steps: Ints) -> float:
    """The logging interval: the median distance of neighbouring steps (1 when there is none)."""
    ahead = np.diff(np.sort(steps))
    ahead = ahead[ahead > 0]
    return float(np.median(ahead)) if ahead.size else 1.0


def find_cuts(line: Line) -> Cuts:
    """The cuts of a log by the rule above. Cost: one pass over the drops."""
    found = Cuts()
    back = np.diff(line.steps)
    drops = np.flatnonzero(back < 0) + 1
    if not drops.size:
        return found
    usual = interval(line.steps)
    is_small = -back[drops - 1] <= WRITER_INTERVALS * usual
    num_small = int((is_small & (line.steps[drops] > START_INTERVALS * usual)).sum())
    found.several_writers = num_small >= max(MIN_WRITER_DROPS, WRITER_FRAC * len(line.steps))
    begin, highest, done = 0, line.steps[0], 0
    for small, i in zip(is_small.tolist(), drops.tolist(), strict=True):
        highest = max(highest, int(line.steps[done:i].max()))
        done = i
        if found.several_writers and small:
            continue
        if _is_straggler(line, begin, i, int(highest), usual):
            found.num_stragglers += 1
            continue
        kind = _kind(line, begin, i)
        step = int(line.steps[i])
        found.cuts.append(Cut(kind=kind, row=int(line.rows[i]), step=step, before=int(highest)))
        if kind != RESUME:
            begin = i
        highest = line.steps[i]
    return found


def _is_straggler(line: Line, begin: int, i: int, highest: int, usual: float) -> bool:
    """One row back only; at the very end, at most two intervals back to a step already seen."""
    if i + 1 < len(line.steps):
        return bool(line.steps[i + 1] > highest) and i - begin > 1
    near = highest - line.steps[i] <= 2 * usual and i - begin > 2
    return bool(near and (line.steps[begin:i] == line.steps[i]).any())


def _kind(line: Line, begin: int, i: int) -> str:
    step, first = line.steps[i], line.steps[begin]
    pace = max(interval(line.steps[begin:i]), interval(line.steps[i : i + 16]))
    is_start = step <= max(first, 1, START_INTERVALS * pace)
    epoch, epoch_before = line.epochs[i], line.epochs[i - 1]
    if np.isfinite(epoch) and np.isfinite(epoch_before):
        if is_start and epoch > epoch_before:
            return EPOCH
        if epoch < 0.5 * _value_at(line, line.epochs, begin, i):
            return RUN
    if not is_start:
        return RESUME
    rate, rate_before = line.rates[i], _value_at(line, line.rates, begin, i)
    begins_late = first > max(1, START_INTERVALS * pace)
    if begins_late and step >= first and abs(rate - rate_before) <= 1e-6 * abs(rate_before):
        return RESUME
    return RUN


def _value_at(line: Line, values: Floats, begin: int, i: int) -> float:
    """The value that this run had at the step of row ``i`` before (NaN: none)."""
    same = np.flatnonzero(line.steps[begin:i] == line.steps[i])
    return float(values[begin + same[-1]]) if same.size else float("nan")
