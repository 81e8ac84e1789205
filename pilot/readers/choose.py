"""Which of several names of a quantity counts."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from pilot.readers.fields import is_epoch_mean
from pilot.readers.merge import Rows
from pilot.readers.points import Column, ColumnKey, Points
from pilot.series.types import GRAD_NORM, LOSS


def choose(points: Points) -> dict[ColumnKey, Column]:
    """One column per quantity: of the best tier the one with the most points, then by rank."""
    best: dict[tuple[bool, str], ColumnKey] = {}
    filled = {key: column for key, column in points.columns.items() if len(column.rows)}
    for key, column in filled.items():
        place = (key.is_validation, key.name)
        other = best.get(place)
        if other is None or _order(key, column) < _order(other, points.columns[other]):
            best[place] = key
    _note_others(points, filled, best)
    chosen = {key: filled[key] for key in best.values()}
    loss = best.get((False, LOSS))
    if loss is not None:
        means = [c for k, c in filled.items() if is_epoch_mean(k) and k != loss]
        chosen[loss] = _with_broken_means(points, chosen[loss], means)
    return chosen


def _with_broken_means(points: Points, loss: Column, means: Sequence[Column]) -> Column:
    """The loss with the means of epochs that are not finite: a loss in the epoch was not.

    A log may show the loss of every tenth step, or the last state of a bar, and miss it.
    """
    rows, values = rows_of(loss), np.frombuffer(loss.values)
    for mean in means:
        own, said = rows_of(mean), np.frombuffer(mean.values)
        broken = ~np.isfinite(said) & ~np.isin(own, rows)
        if broken.any():
            points.note("the mean loss of an epoch is not finite: counted as a loss of its end")
            rows, values = np.append(rows, own[broken]), np.append(values, said[broken])
    if len(rows) == len(loss.rows):
        return loss
    order = np.argsort(rows, kind="stable")
    return Column(rows=array("I", rows[order].tolist()), values=array("d", values[order].tolist()))


def _note_others(
    points: Points, filled: dict[ColumnKey, Column], best: dict[tuple[bool, str], ColumnKey]
) -> None:
    for name in (LOSS, GRAD_NORM):
        chosen = best.get((False, name))
        names = [k for k in filled if not k.is_validation and k.name == name]
        others = [k.alias for k in names if k == chosen or not is_epoch_mean(k)]
        if chosen is not None and chosen.alias and len(set(others)) > 1:
            more = _names(others, chosen)
            points.note(f"{name} is the column {chosen.alias!r} (also there: {more})")


def _order(key: ColumnKey, column: Column) -> tuple[int, int, int, str]:
    return key.tier, -len(column.rows), key.rank, key.alias


def _names(aliases: Iterable[str], chosen: ColumnKey) -> str:
    others = sorted({alias for alias in aliases if alias != chosen.alias})
    return ", ".join(repr(alias) for alias in others[:3]) + (", ..." if len(others) > 3 else "")


def rows_of(column: Column) -> Rows:
    """The rows of a column, rising."""
    return np.frombuffer(column.rows, dtype=np.uint32)
