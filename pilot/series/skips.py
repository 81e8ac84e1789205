"""Steps without an update: non-finite grad norms beside a finite loss, and steps skipped."""

from __future__ import annotations

import math

from pilot.series.book import Book
from pilot.series.limits import (
    FIRST_SKIPS,
    MIN_SERIES,
    SKIP_COUNT,
    SKIP_FRAC,
    SKIP_MOVED,
    SKIP_RUN,
)
from pilot.series.point import Point
from pilot.series.types import FAIL, GRAD_NORM, HIGH, LOW, MEDIUM, NOTE, SKIPPED, WARN, Event


class Skips:
    """Isolated ones are a note, more than 4 and more than 2 % of the records a warning.

    A record counts when its grad norm is not finite or the trainer says that it skipped the update.
    A log rarely holds the loss scale, so the rule allows what a scaler in balance does, and the
    search for a scale before the first good record (fewer than twenty). Fail: five in a row after
    the first good one; twenty before it. At the end of a series without any good one, no update was
    made: from four on it fails, from three on if the learning rate moved (it stands still while a
    scaler skips), a warning from two on if it moved; a warning from four on where the trainer says
    that it skipped them (the search for a scale). Those of a record with loss 0.0 count here too,
    its own event is ``zero_loss``. Cost: one comparison a step.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._note: int | None = None
        self._fail: int | None = None
        self._records = self._bad = self._run = self._initial = self._said = self._norms = 0
        self._first = self._last = self._run_start = 0
        self._rates: set[float] = set()

    def good(self, step: int) -> None:
        """A record whose update was made."""
        self._records += 1
        if not self._run:
            return
        if self._fail is not None:
            self._book.change(self._fail, recovered_step=step, is_open=False)
        if self._bad == self._records - 1:
            self._initial = self._bad
        self._run, self._fail = 0, None

    def bad(self, point: Point, *, zero: bool) -> None:
        """A record whose update was skipped, or lost in a grad norm that is not finite."""
        step = point.step
        self._records += 1
        self._bad += 1
        self._last = step
        self._said += bool(point.skipped)
        self._norms += point.grad_norm is not None and not math.isfinite(point.grad_norm)
        if len(self._rates) < 2 and point.learning_rate is not None:
            self._rates.add(point.learning_rate)
        if self._run == 0:
            self._run_start = step
        self._run += 1
        never = self._run == self._records
        if self._fail is not None:
            self._book.change(self._fail, last_step=step)
        elif self._run >= (FIRST_SKIPS if never else SKIP_RUN):
            self._fail = self._book.open(self._failed(FAIL))
        if not zero:
            self._isolated(step)

    def finish(self) -> None:
        """The series ended: without one good record there was no update ever."""
        if self._fail is not None or self._run != self._records or not self._run:
            return
        moved = len(self._rates) > 1
        if self._said:
            severity = WARN if self._run >= SKIP_COUNT else NOTE
        elif self._run >= SKIP_COUNT or (moved and self._run > SKIP_MOVED):
            severity = FAIL
        else:
            severity = WARN if moved and self._run >= SKIP_MOVED else NOTE
        if severity == NOTE:
            return
        event = self._failed(severity)
        if self._note is None:
            self._note = self._book.open(event)
        else:
            self._book.put(self._note, event)

    def _isolated(self, step: int) -> None:
        after = self._bad - (self._run if self._run == self._records else self._initial)
        many = after > SKIP_COUNT and after > SKIP_FRAC * self._records
        if self._note is None:
            self._first = step
        event = Event(
            kind="nonfinite",
            series=self._series(),
            first_step=self._first,
            last_step=step,
            severity=WARN if many else NOTE,
            confidence=MEDIUM if many else LOW,
            detail=f"{self._what()} in {self._bad} of {self._records} records",
        )
        if self._note is None:
            self._note = self._book.open(event)
        else:
            self._book.put(self._note, event)

    def _series(self) -> str:
        return GRAD_NORM if self._norms else SKIPPED

    def _what(self) -> str:
        return "grad norm not finite" if self._norms else "update skipped"

    def _failed(self, severity: str) -> Event:
        never = self._run == self._records
        text = f"{self._what()} in {self._run} records in a row from step {self._run_start}"
        sure = HIGH if self._run >= FIRST_SKIPS else MEDIUM
        enough = MIN_SERIES if self._said else SKIP_COUNT
        return Event(
            kind="nonfinite_first_step" if never else "nonfinite",
            series=self._series(),
            first_step=self._run_start,
            last_step=self._last,
            is_open=True,
            severity=severity,
            confidence=sure if self._run >= enough else LOW,
            detail=f"{text}, all there are: no update" if never else text,
        )
