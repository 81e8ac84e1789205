"""How long a loss that never recovered stays high: to the end, or to a late return."""

from __future__ import annotations

from dataclasses import dataclass

from pilot.series.book import Book
from pilot.series.level import Reading
from pilot.series.limits import BACK_SIGMA, SHIFT_FRAC


@dataclass(slots=True)
class _Stay:
    key: int
    bound: float
    last: int


class Staying:
    """While m > b + max(s, 2 % of the unit) a ``never_recovers`` goes on, whenever it was judged.

    m = the present level (median of 16 records, ``level``); b, s and unit those frozen at the start
    of the event. Its ``last_step`` is then the last such record; it is entered when the level has
    come below, or at the end of the series. Nothing else of the event changes, so it has no
    influence on a state. Cost: one comparison a step for each such event, nothing without one.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self.open: list[_Stay] = []

    def add(self, key: int, base: Reading) -> None:
        """Follow the event under ``key`` if it is one that never recovers."""
        event = self._book.get(key)
        if event.kind == "never_recovers":
            bound = base.level + max(BACK_SIGMA * base.sigma, SHIFT_FRAC * base.unit)
            self.open.append(_Stay(key, bound, event.last_step))

    def update(self, step: int, level: float) -> None:
        """Take the level after one more record."""
        for stay in tuple(self.open):
            if level > stay.bound:
                stay.last = step
            else:
                self._enter(stay)
                self.open.remove(stay)

    def finish(self) -> None:
        """The series ended."""
        for stay in self.open:
            self._enter(stay)
        self.open.clear()

    def _enter(self, stay: _Stay) -> None:
        event = self._book.get(stay.key)
        if event.kind == "never_recovers" and event.last_step < stay.last:
            self._book.change(stay.key, last_step=stay.last)
