"""Updates that an optimizer skipped, as loss scalers and trainers say it between the other lines.

- DeepSpeed: ``OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 64, reducing to 32``
- apex: ``Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 2.0``
- fairseq: ``WARNING: overflow detected, setting loss scale to: 0.25``, since 0.9 ``gradient
  overflow detected, ignoring gradient, setting loss scale to: 64.0``
- own loops: ``Step 1557: non-finite gradient; skipping optimizer step``

All of them speak within the step, before its record is printed: the skipped update belongs to the
record that follows (at the end of a log, to the last one), unless the line names its step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from pilot.readers.points import ColumnKey, Points
from pilot.readers.text_names import NUMBER, number
from pilot.series.types import GRAD_NORM, LOSS, LOSS_SCALE, SKIPPED, Series

# Tier 1: where the trainer logs a count or a scale of its own, that counts.
SKIPS = ColumnKey(False, SKIPPED, 1)
SCALES = ColumnKey(False, LOSS_SCALE, 1)
_SKIP = re.compile(
    r"overflow!?[. ].{0,40}?skipping step"
    r"|overflow detected,(?: ignoring gradient,)? setting loss scale"
    r"|skipping (?:the )?(?:optimizer|optimiser|update|gradient|parameter)[ _-]?(?:step|update)?\b",
    re.IGNORECASE,
)
_SCALE = re.compile(
    rf"(?:reducing (?:loss scale )?to|setting loss scale to):?\s*({NUMBER})", re.IGNORECASE
)
_STEP = re.compile(
    r"\b(?:global[ _])?(?:step|iteration|iter)[ :=#]\s*(\d+)(?![\d./])", re.IGNORECASE
)


def is_skip(line: str) -> bool:
    """Whether a line says that an update was skipped. Cost: two searches for a substring."""
    return ("kipping" in line or "verflow" in line) and _SKIP.search(line) is not None


def noticed(points: Points, lines: Iterable[str]) -> Iterator[str]:
    """The lines, unchanged; what they say of skipped updates is added to the points.

    Cost: two searches for a substring a line.
    """
    skips = _Skips(points)
    num_rows = points.steps.__len__
    for line in lines:
        if is_skip(line):
            skips.see(line)
        if skips.num:
            before = num_rows()
            yield line
            if num_rows() > before:
                skips.attach()
        else:
            yield line
    skips.finish()


class _Skips:
    """What was said since the last record of the training."""

    def __init__(self, points: Points) -> None:
        self.points, self.num = points, 0
        self.scale: float | None = None

    def see(self, line: str) -> None:
        """Take up a line; one that names its step gets a row of its own."""
        points, at = self.points, _STEP.search(line)
        if at is not None:
            points.row(int(at.group(1)))
            points.put(SKIPS, 1.0)
            return
        self.num += 1
        match = _SCALE.search(line)
        if match is not None:
            self.scale = number(match.group(1))

    def attach(self) -> None:
        """Give what was said to the newest row if it is one of the training."""
        newest = len(self.points) - 1
        if _last_train_row(self.points) == newest:
            self._put(newest)

    def finish(self) -> None:
        """Give the rest to the last row of the training; without any, to the last validation."""
        row = _last_train_row(self.points)
        if self.num and len(self.points):
            self._put(row if row >= 0 else len(self.points) - 1)

    def _put(self, row: int) -> None:
        for key, value in ((SKIPS, float(self.num)), (SCALES, self.scale)):
            column = self.points.column(key)
            if value is None:
                continue
            if len(column.rows) and column.rows[-1] == row:
                column.values[-1] = value + (column.values[-1] if key is SKIPS else 0.0)
            elif not len(column.rows) or column.rows[-1] < row:
                column.rows.append(row)
                column.values.append(value)
        self.num, self.scale = 0, None


def _last_train_row(points: Points) -> int:
    rows = [
        column.rows[-1]
        for key, column in points.columns.items()
        if not key.is_validation and key.name in (LOSS, GRAD_NORM) and len(column.rows)
    ]
    return max(rows, default=-1)


def settled(skips: Series, losses: Series | None) -> Series:
    """A record counts as skipped where at least half of its updates were: else its count is 0.

    ``losses`` gives the records; a record covers the steps since the one before. A scaler in
    balance skips one update in a thousand or two, which leaves a record of 100 steps a real one.
    """
    if losses is None or len(losses.steps) < 2:
        return skips
    usual = float(np.median(np.diff(losses.steps)))
    place = np.searchsorted(losses.steps, skips.steps)
    before = np.where(place > 0, losses.steps[np.maximum(place - 1, 0)], skips.steps - usual)
    values = np.where(2 * skips.values >= skips.steps - before, skips.values, 0.0)
    is_own = ~np.isin(skips.steps, losses.steps)  # a line that named its step
    return Series(steps=skips.steps, values=np.where(is_own, skips.values, values))
