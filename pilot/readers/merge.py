"""One value per step: what a log repeats is joined; a log without steps is numbered by record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pilot.readers.points import FIRST, LAST, MEAN, ColumnKey
from pilot.series.types import GRAD_NORM, LOSS, Series

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.uint32]
MIN_TWIN_ROWS, TWIN_SHARE = 8, (0.45, 0.58)  # of 8 rows in pairs 4 of 7 equal the one before


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One quantity in file order: the row of each value, its step and the value."""

    key: ColumnKey
    rows: Rows
    steps: Ints
    values: Floats

    def at(self, keep: npt.NDArray[np.bool_]) -> Stream:
        """The entries where ``keep`` is true."""
        return Stream(
            key=self.key, rows=self.rows[keep], steps=self.steps[keep], values=self.values[keep]
        )

    def between(self, begin: int, end: int, row_steps: Ints) -> Stream:
        """The entries of rows from ``begin`` to before ``end``, with the steps of those rows."""
        first, last = np.searchsorted(self.rows, [begin, end])
        rows = self.rows[first:last]
        return Stream(
            key=self.key, rows=rows, steps=row_steps[rows], values=self.values[first:last]
        )


def counts(key: ColumnKey) -> bool:
    """Whether a quantity makes a run: a loss, a gradient norm or a validation."""
    return key.is_validation or key.name in (LOSS, GRAD_NORM)


def by_step(part: Sequence[Stream], repeats: str, notes: list[str]) -> dict[ColumnKey, Series]:
    """Series with strictly rising steps; says in ``notes`` how repeats were joined."""
    series, num_repeats, differ = {}, 0, False
    for stream in part:
        if not len(stream.rows):
            continue
        steps, values = stream.steps, stream.values
        if (steps[1:] < steps[:-1]).any():
            order = np.argsort(steps, kind="stable")
            steps, values = steps[order], values[order]
        firsts = np.flatnonzero(np.append(True, np.diff(steps) > 0))
        if len(firsts) < len(steps):
            joined = _join(values, firsts, FIRST if stream.key.is_validation else repeats)
            if not stream.key.is_validation and stream.key.name == LOSS:
                num_repeats = len(steps) - len(firsts)
                differ = not np.array_equal(np.repeat(joined, _sizes(firsts, values)), values, True)
            steps, values = steps[firsts], joined
        series[stream.key] = Series(steps=steps, values=values)
    if num_repeats:
        how = "the last counts" if repeats == LAST else "their mean counts"
        how = how if differ else "they are equal"
        notes.append(f"losses that repeat a step: {num_repeats} ({how})")
    return series


def _sizes(firsts: Ints, values: Floats) -> Ints:
    return np.diff(np.append(firsts, len(values)))


def _join(values: Floats, firsts: Ints, how: str) -> Floats:
    """One value per step. A later validation of a step is often another model: the first counts."""
    sizes = _sizes(firsts, values)
    if how != MEAN:
        return np.take(values, firsts if how == FIRST else firsts + sizes - 1)
    low, high = np.minimum.reduceat(values, firsts), np.maximum.reduceat(values, firsts)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = np.add.reduceat(values, firsts) / sizes
    joined: Floats = np.where(low == high, low, mean)
    return joined


def joined_rows(groups: Iterable[Rows]) -> Rows:
    """The row numbers of all groups, rising, each once (a mask: faster than sorting)."""
    groups = [rows for rows in groups if len(rows)]
    mask = np.zeros(max((int(rows[-1]) for rows in groups), default=-1) + 1, dtype=bool)
    for rows in groups:
        mask[rows] = True
    return np.flatnonzero(mask).astype(np.uint32)


def by_record(part: Sequence[Stream], notes: list[str]) -> dict[ColumnKey, Series]:
    """Numbered by record: 1 for the first row with a loss or a gradient norm."""
    twins = find_twins(part)
    if len(twins):
        part = [stream.at(~np.isin(stream.rows, twins)) for stream in part]
        notes.append(f"records printed twice in a row: {len(twins)}; one of each counts")
    train = [s.rows for s in part if not s.key.is_validation and counts(s.key)]
    has_train = any(len(rows) for rows in train)
    records = joined_rows(train if has_train else [s.rows for s in part if s.key.is_validation])
    series = {}
    for stream in part:
        number = np.searchsorted(records, stream.rows, side="right")
        keep = np.isin(stream.rows, records) | stream.key.is_validation
        if keep.any():
            series[stream.key] = Series(
                steps=number[keep].astype(np.int64), values=stream.values[keep]
            )
    return series


def find_twins(part: Sequence[Stream]) -> Rows:
    """The rows that equal the one before in every value, where about each second row does.

    So looks a log of which each record was printed by two handlers. In a dead run nearly all rows
    are equal, in a sound one few: neither is touched.
    """
    train = [stream for stream in part if not stream.key.is_validation]
    rows = joined_rows([stream.rows for stream in train if counts(stream.key)])
    if len(rows) < MIN_TWIN_ROWS:
        return rows[:0]
    table = np.full((len(rows), len(train)), np.nan)
    for place, stream in enumerate(train):
        known = np.isin(stream.rows, rows)
        table[np.searchsorted(rows, stream.rows[known]), place] = stream.values[known]
    before, after = table[:-1], table[1:]
    equal = ((before == after) | (np.isnan(before) & np.isnan(after))).all(axis=1)
    share = float(equal.mean())
    return rows[1:][equal] if TWIN_SHARE[0] <= share <= TWIN_SHARE[1] else rows[:0]
