"""A grad norm that keeps growing while the loss does not fall."""

from __future__ import annotations

import math

from pilot.series.book import Book
from pilot.series.limits import GRAD_BLOCK, GRAD_BLOCKS, GRAD_GROWTH, TREND_FRAC
from pilot.series.rolling import mid
from pilot.series.text import num, size
from pilot.series.trend import mann_kendall, theil_sen
from pilot.series.types import GRAD_NORM, LOW, MEDIUM, NOTE, Event

_Z = 2.5  # of at most 3.34 for eight blocks
_GONE = 0.5  # of the growth: below it the event is over


class GradTrend:
    """Over eight medians of 16 records ln g grows by ln 2 and the loss does not fall: a note.

    Growth = Theil-Sen slope of the block medians of ln g x 7, with Mann-Kendall Z > 2.5; the loss
    must not fall by more than 1.5 % of its level over the same blocks (a growing norm beside a
    falling loss is normal, so is a slow growth of 1.5 x over a run). Judges from 128 records with
    a positive finite norm and a finite loss on, once a block. Others are not seen. A constant
    series has no growth. Cost: two medians of 16 a block.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._norms: list[float] = []
        self._losses: list[float] = []
        self._blocks: list[tuple[int, float, float]] = []
        self._first = 0
        self._key: int | None = None

    def update(self, step: int, grad_norm: float, loss: float) -> None:
        """Take one record in; judge at the end of a block."""
        if not 0.0 < grad_norm < math.inf:
            return
        if not self._norms:
            self._first = step
        self._norms.append(grad_norm)
        self._losses.append(loss)
        if len(self._norms) < GRAD_BLOCK:
            return
        middle = mid([math.log(norm) for norm in self._norms])
        self._blocks.append((self._first, middle, mid(self._losses)))
        del self._blocks[:-GRAD_BLOCKS]
        self._norms, self._losses = [], []
        if len(self._blocks) == GRAD_BLOCKS:
            self._judge(step)

    def _judge(self, step: int) -> None:
        logs = [log for _, log, _ in self._blocks]
        losses = [loss for _, _, loss in self._blocks]
        growth = theil_sen(logs) * (GRAD_BLOCKS - 1)
        change = theil_sen(losses) * (GRAD_BLOCKS - 1)
        if growth < _GONE * math.log(GRAD_GROWTH):
            self._key = None
            return
        level = abs(losses[-1])
        grown = growth >= math.log(GRAD_GROWTH) and mann_kendall(logs) > _Z
        if not grown or change < -TREND_FRAC * level:
            return
        if self._key is not None:
            self._book.change(self._key, last_step=step)
            return
        event = Event(
            kind="grad_norm_trend",
            series=GRAD_NORM,
            first_step=self._blocks[0][0],
            last_step=step,
            severity=NOTE,
            confidence=MEDIUM if growth >= 2.0 * math.log(GRAD_GROWTH) else LOW,
            size_frac=size(math.expm1(min(growth, 50.0))),
            detail=f"grad norm {num(math.exp(logs[0]))} to {num(math.exp(logs[-1]))} "
            f"while the loss does not fall",
        )
        self._key = self._book.open(event)
