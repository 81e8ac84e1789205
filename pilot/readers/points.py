"""Collects the points of a log in arrays, and turns them into one trace per run.

Every reader adds rows (a step or none, and values) in the order of the file; what repeats, steps
back or starts anew is decided here, once, for all formats (``pilot/readers/runs.py`` has the rule).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pilot.series.types import TRAIN_NAMES, Trace

NO_STEP = -(2**62)
ODD_STEPS = "steps such as "  # how the note begins on steps that are no whole numbers
MAX_STEP = 2**53  # beyond, a float is no exact count
# A log may repeat a step: the mean joins ranks and micro-batches, the last line a progress bar.
MEAN, LAST, FIRST = "mean", "last", "first"


class ColumnKey(NamedTuple):
    """One quantity under one of its names: several names of the same quantity may occur.

    ``tier`` 0 are the names that always mean it, higher ones those that may; ``rank`` orders
    equals. (A tuple: it is looked up for every value, and a dataclass hashes five times slower.)
    """

    is_validation: bool
    name: str
    tier: int = 0
    rank: int = 0
    alias: str = ""


@dataclass
class Column:
    """The values of one quantity: ``rows`` (index of the row in the log) and ``values``."""

    rows: array[int] = field(default_factory=lambda: array("I"))
    values: array[float] = field(default_factory=lambda: array("d"))


class Points:
    """Rows of a log in file order, kept as arrays (about 24 bytes a row and 12 a value).

    ``objective`` "" means: by the keys of the records (``pilot/readers/fields.py``).
    ``repeats`` says what to do with several values of one step: ``mean`` or ``last``.
    ``axis`` is what the steps of the rows count: ``steps``, or ``epochs``.
    """

    def __init__(
        self, source: Path | str, format: str, *, objective: str = "", repeats: str = MEAN
    ) -> None:
        self.source, self.format = str(source), format
        self.objective, self.repeats, self.axis = objective, repeats, "steps"
        self.steps: array[int] = array("q")
        self.columns: dict[ColumnKey, Column] = {}
        self.starts: array[int] = array("I")
        self.notes: list[str] = []
        self.odd_step: float | None = None  # a step that was logged and cannot be used
        self.keys: set[str] = set()
        self._entry_step: int | None = None
        self._entry_keys: set[ColumnKey] = set()
        self._train_keys = {name: ColumnKey(False, name) for name in TRAIN_NAMES}

    def __len__(self) -> int:
        return len(self.steps)

    def train(self, step: float | None, values: Mapping[str, float | None]) -> None:
        """Add a row of training values (names of ``TRAIN_NAMES``; None: not logged)."""
        self.row(step)
        for name, value in values.items():
            self.put(self._train_keys[name], value)

    def validation(self, step: float | None, values: Mapping[str, float | None]) -> None:
        """Add a row of validation losses by the set's name ("" for the only one)."""
        self.row(step)
        for name, value in values.items():
            self.put(ColumnKey(True, name), value)

    def row(self, step: float | None) -> None:
        """Begin a row. A step that is no whole number counts as none."""
        if step is None or not -MAX_STEP < step < MAX_STEP or step != int(step):
            self.steps.append(NO_STEP)
            if step is not None:
                self.odd_step = step
        else:
            self.steps.append(int(step))

    def column(self, key: ColumnKey) -> Column:
        """The column of a quantity, to append to directly in a hot loop."""
        try:
            return self.columns[key]
        except KeyError:
            return self.columns.setdefault(key, Column())

    def put(self, key: ColumnKey, value: float | None) -> None:
        """Add a value to the newest row; NaN and infinities are values, None is none."""
        if value is not None:
            column = self.column(key)
            column.rows.append(len(self.steps) - 1)
            column.values.append(value)

    def entry(self, step: int, key: ColumnKey, value: float) -> None:
        """Add one value that was logged by itself; those of one step in one go become one row."""
        if not len(self.steps) or step != self._entry_step or key in self._entry_keys:
            self.row(step)
            self._entry_step, self._entry_keys = step, set()
        self._entry_keys.add(key)
        self.put(key, value)

    def start(self) -> None:
        """The text says that a training starts here; decides only where steps and epochs do not."""
        self.starts.append(len(self.steps))

    def note(self, sentence: str) -> None:
        """Add a short sentence, for people, on what the reader had to decide."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def traces(self) -> list[Trace]:
        """One trace per run; empty where nothing but learning rates or epochs was found."""
        from pilot.readers.assemble import split

        return split(self)
