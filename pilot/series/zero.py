"""A loss of exactly zero without a gradient: nothing is trained."""

from __future__ import annotations

import math

from pilot.series.book import Book
from pilot.series.level import Reading
from pilot.series.limits import ABRUPT_FRAC, ALL_ZEROS, DEAD_RUN, HELD_ZEROS, HUGE_START
from pilot.series.types import FAIL, HIGH, LOSS, LOW, MEDIUM, NOTE, WARN, Event

PRECISION = "precision"  # the hint of zeros that are hidden NaNs


class Zero:
    """Loss == 0.0 with a grad norm that is not finite (at once), zero or absent (three in a row).

    Some trainers log a loss of NaN as 0.0; a batch whose labels are all masked has loss 0 and
    gradient 0. A loss of 0.0 with a live gradient is no event (a rounded policy loss). With no
    grad norm in the log only an abrupt fall counts: the level before was above 5 % of the first
    level, or nothing but zeros came before. When the loss has no level (reinforcement learning)
    only zeros beside a grad norm of exactly 0 count: 64 in a row, or the first 16 of the run; they
    are a note once they end. Sure is ``high`` from three on with a grad norm, at most ``medium``
    without one. A run ends with a loss above 0 and a grad norm
    that is not bad; zeros to the end of the series, however few, take up one that had ended. The
    hint ``precision``: with a grad norm that is not finite, after a first level above 50, or beside
    losses that are not finite, the zeros are NaNs, not labels. Missing losses do not count. Cost:
    one comparison a step.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._key: int | None = None
        self._last_key: int | None = None
        self._hidden = False
        self._run: list[int] = []
        self._bad = False
        self._count = self._blind = 0
        self._levelled = True
        self.nonzero = False

    @property
    def runs(self) -> bool:
        """Whether a run of zeros goes on."""
        return bool(self._run)

    def update(
        self, step: int, loss: float, grad_norm: float | None, start: float, reading: Reading
    ) -> bool:
        """Judge one finite loss; true when it is a zero that says nothing about the level."""
        bad = grad_norm is not None and not math.isfinite(grad_norm)
        live = grad_norm is not None and not bad and grad_norm != 0.0
        if loss != 0.0 or live:
            if bad and self._bad:
                return False
            self.nonzero = self.nonzero or loss != 0.0
            self._end(step)
            return False
        learned = self.nonzero and reading.level <= ABRUPT_FRAC * start
        if grad_norm is None and learned and not self._run:
            return False
        self._run = [*self._run[:DEAD_RUN], step]
        self._count += 1
        self._blind += grad_norm is None
        self._bad = self._bad or bad
        self._hidden = self._hidden or bad or start > HUGE_START
        return True

    def judge(self, levelled: bool) -> None:
        """Open or extend the event of the present run of zeros."""
        self._levelled = levelled
        if not self._run or not (self._bad or self._long()):
            return
        if self._key is None:
            self._key = self._last_key = self._book.open(self._event())
        self._book.change(self._key, last_step=self._run[-1], confidence=self._sure())

    def _long(self) -> bool:
        """Whether so many zeros are more than a batch or two without a gradient."""
        if self._levelled:
            return self._count >= DEAD_RUN
        return not self._blind and self._count >= (HELD_ZEROS if self.nonzero else ALL_ZEROS)

    def _sure(self) -> str:
        if self._blind == self._count:
            return MEDIUM if self._count >= DEAD_RUN else LOW
        return HIGH if self._count >= DEAD_RUN else MEDIUM if self._bad else LOW

    def _end(self, step: int) -> None:
        if not self._run:
            return
        if self._key is not None:
            self._book.change(
                self._key,
                recovered_step=step,
                is_open=False,
                severity=FAIL if self._bad else WARN if self._levelled else NOTE,
            )
        self._key, self._run, self._bad = None, [], False
        self._count = self._blind = 0

    def finish(self, levelled: bool, *, broken: bool) -> None:
        """The series ended: nothing but zeros is dead, however short; so are zeros once more.

        ``broken``: there was a loss that was not finite, and the zeros are taken for such too.
        """
        self._hidden = self._hidden or broken
        if self._run and levelled and self._key is None:
            self._end_with_zeros()
        if broken and self._last_key is not None:
            self._book.change(self._last_key, hint=PRECISION)

    def _end_with_zeros(self) -> None:
        if self._last_key is not None:
            end = self._run[-1]
            self._book.change(
                self._last_key, last_step=end, recovered_step=None, is_open=True, severity=FAIL
            )
        elif not self.nonzero:
            self._key = self._last_key = self._book.open(self._event())

    def _event(self) -> Event:
        why = "a grad norm that is not finite" if self._bad else "no gradient"
        return Event(
            kind="zero_loss",
            series=LOSS,
            first_step=self._run[0],
            last_step=self._run[-1],
            is_open=True,
            severity=FAIL,
            confidence=self._sure(),
            detail=f"loss is exactly 0 with {why} from step {self._run[0]}",
            hint=PRECISION if self._hidden else "",
        )
