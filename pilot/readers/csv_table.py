"""Tables: W&B exports, Lightning's and Keras' loggers, and any CSV with a header."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from pilot.readers import source
from pilot.readers.base import Reader
from pilot.readers.fields import column, step_rank
from pilot.readers.points import ColumnKey, Points
from pilot.readers.record import decides, number
from pilot.series.types import EPOCH, Trace

NAME = "csv"
_HEADER_LINES = 30  # titles and comments may stand before the header
_PROBE_ROWS = 500
_DELIMITERS = ",;\t|"
# W&B writes "RUN - METRIC" and, for grouped curves, the same with these ends.
_BAND = re.compile(r"__(?:MIN|MAX)$")
_MARKS = " *`~"  # how Markdown makes a cell stand out
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+(?:[eE][-+]?\d+)?")


Row = Sequence[str]
Group = Sequence[tuple[int, ColumnKey]]


@dataclass(frozen=True, kw_only=True)
class Table:
    """The header of a table: where it stands, how it is split, and what its columns are.

    ``epoch`` is the column that counts where there is no step. ``groups``: by run (a W&B export may
    hold several side by side) the columns of each quantity.
    """

    line: int
    delimiter: str
    fields: tuple[str, ...]
    steps: tuple[tuple[int, int], ...]
    epoch: int | None
    groups: dict[str, tuple[tuple[int, ColumnKey], ...]]


def find_table(lines: Sequence[str]) -> Table | None:
    """The first line that names a loss, a grad norm or a validation loss as one of its fields."""
    for number_, text in enumerate(lines[:_HEADER_LINES]):
        for delimiter in _DELIMITERS:
            if delimiter in text and len(text) < 100_000:
                table = _table(number_, delimiter, text)
                if table is not None and _fits(table, lines[number_ + 1 : number_ + 6]):
                    return table
    return None


def _table(line: int, delimiter: str, text: str) -> Table | None:
    fields = tuple(field.strip().strip(_MARKS) for field in _split(text.lstrip("#"), delimiter))
    if any(number(field) is not None for field in fields):
        return None
    groups: dict[str, list[tuple[int, ColumnKey]]] = {}
    steps = []
    for place, field in enumerate(fields):
        run, key = _run_and_key(field)
        rank = step_rank(key)
        if rank is not None and not _BAND.search(key):
            steps.append((rank, place))
        elif (quantity := column(key)) is not None and not _BAND.search(key):
            groups.setdefault(run, []).append((place, quantity))
    decisive = {run: tuple(g) for run, g in groups.items() if any(decides(q) for _, q in g)}
    if not decisive:
        return None
    shared = tuple(groups.get("", [])) if "" not in decisive else ()
    joined = {run: group + shared for run, group in decisive.items()}
    return Table(
        line=line,
        delimiter=delimiter,
        fields=fields,
        steps=tuple(sorted(steps)),
        epoch=next((place for g in joined.values() for place, q in g if q.name == EPOCH), None),
        groups=joined,
    )


def _run_and_key(field: str) -> tuple[str, str]:
    """The parts of ``RUN - METRIC``; a plain column has no run."""
    run, _, key = field.rpartition(" - ")
    whole = column(field)
    if run and whole is not None and (whole.is_validation or "train" in run.lower().split()):
        return "", field
    return run, key


def _split(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:
        return []


def _fits(table: Table, following: Sequence[str]) -> bool:
    """A row under the header has as many fields, and a number among them."""
    if not following:
        return True
    for text in following:
        fields = _split(text, table.delimiter)
        if len(fields) == len(table.fields) and any(number(f) is not None for f in fields):
            return True
    return False


def sniff(head: str, path: Path) -> float:
    """Sure where a header names a loss and rows of numbers follow."""
    if head.lstrip()[:1] in "{[":
        return 0.0
    table = find_table(head.split("\n"))
    if table is None:
        return 0.15 if path.suffix.lower() in (".csv", ".tsv") else 0.0
    return 0.93 if table.delimiter in ",\t" or len(table.fields) > 2 else 0.7


def read(path: Path) -> Iterator[Trace]:
    """A trace per run; a run's points come from its own columns and the shared step."""
    texts = source.lines(path)
    first = list(islice(texts, _HEADER_LINES + 6))
    table = find_table(first)
    if table is None:
        return
    rows = csv.reader(chain(first[table.line + 1 :], texts), delimiter=table.delimiter)
    probe = list(islice(_whole(rows), _PROBE_ROWS))
    several = len(table.groups) > 1
    points = {run: Points(f"{path}#{run}" if several else path, NAME) for run in table.groups}
    for one in points.values():
        one.keys.update(_run_and_key(field)[1] for field in table.fields)
    adders = [_adder(points[run], g, table.delimiter) for run, g in table.groups.items()]
    step_place = _step_place(table, probe)
    if step_place is None and (step_place := _epoch_place(table, probe)) is not None:
        for one in points.values():
            one.axis = "epochs"
    for row in chain(probe, _whole(rows)):
        step = _cell(row, step_place, table.delimiter) if step_place is not None else None
        for add in adders:
            add(row, step)
    for one in points.values():
        yield from one.traces()


def _whole(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """The rows that can be read (a field may be too long or hold a stray quote)."""
    while True:
        try:
            yield next(rows)
        except csv.Error:
            continue
        except StopIteration:
            return


def _step_place(table: Table, probe: Sequence[Row]) -> int | None:
    """The most trusted step column that is filled in most of the rows with a decisive value."""
    decisive = [place for g in table.groups.values() for place, q in g if decides(q)]
    rows = [
        r for r in probe if any(_cell(r, place, table.delimiter) is not None for place in decisive)
    ]
    for _, place in table.steps:
        num_filled = sum(_cell(row, place, table.delimiter) is not None for row in rows)
        if 2 * num_filled >= max(1, len(rows)):
            return place
    return None


def _epoch_place(table: Table, probe: Sequence[Row]) -> int | None:
    """The column of the epoch, where the table has one row per whole epoch."""
    if table.epoch is None:
        return None
    epochs = [_cell(row, table.epoch, table.delimiter) for row in probe]
    known = [epoch for epoch in epochs if epoch is not None]
    is_count = all(epoch == epoch // 1 for epoch in known) and 2 * len(known) >= len(epochs)
    return table.epoch if known and is_count and 2 * len(set(known)) > len(known) else None


def _adder(points: Points, group: Group, delimiter: str) -> Callable[[Row, float | None], None]:
    """What adds a row of the table as a row of points (bound once: it runs for every line)."""
    columns = [(place, decides(q), points.column(q)) for place, q in group]

    def add(row: Row, step: float | None) -> None:
        width, found, is_point = len(row), [], step is not None
        for place, deciding, column_ in columns:
            text = row[place] if place < width else ""
            if text and (value := _number(text, delimiter)) is not None:
                found.append((column_, value))
                is_point = is_point or deciding
        if found and is_point:
            points.row(step)
            number_of_row = len(points) - 1
            for column_, value in found:
                column_.rows.append(number_of_row)
                column_.values.append(value)

    return add


def _cell(row: Row, place: int, delimiter: str) -> float | None:
    text = row[place] if place < len(row) else ""
    return _number(text, delimiter) if text else None


def _number(text: str, delimiter: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        if delimiter != "," and _DECIMAL_COMMA.fullmatch(text.strip()):
            return float(text.replace(",", "."))
        return number(text.strip(_MARKS))


READERS = (
    Reader(
        name=NAME,
        wants='a header with a column such as "loss" or "val_loss" (CSV, TSV, W&B export)',
        sniff=sniff,
        read=read,
    ),
)
