"""JSON files with a list of records: Hugging Face ``trainer_state.json`` and its relatives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pilot.readers import source
from pilot.readers.base import Reader
from pilot.readers.fields import column
from pilot.readers.json_values import decode, loads
from pilot.readers.points import Points
from pilot.readers.record import add_record, decides, has_point
from pilot.series.types import Trace

STATE, JSON = "trainer_state", "json"
_HISTORY = re.compile(r'"(?:\w*log_history|\w*_history|history)"\s*:\s*\[\s*(?=\{)')
_LIST = re.compile(r"\s*\[\s*(?=\{)")
_LOSS_KEY = re.compile(r'"[^"\n]{0,100}loss[^"\n]{0,40}"\s*:', re.IGNORECASE)
# Records over several lines, as in a trainer state of which a part was copied.
_EXCERPT = re.compile(r'\{[ ]*\n[^{}]{0,2000}?"[^"\n{}]{0,60}loss"\s*:\s*[-\dNI][^{}]{0,2000}\}')
# A record that is not complete within this many characters is damaged.
_LONGEST_RECORD = 1 << 20
_LARGEST_FILE = 256 << 20


def sniff_state(head: str, path: Path) -> float:
    """Sure with ``log_history`` and the like before a list of objects."""
    if head.lstrip()[:1] != "{" or _HISTORY.search(head) is None:
        return 0.0
    return 0.98 if "log_history" in head else 0.94


def sniff_json(head: str, path: Path) -> float:
    """One JSON value over the whole file that mentions a loss, or a part of such a file."""
    text = head.lstrip()
    first = text.split("\n", 1)[0].rstrip()
    is_list = _LIST.match(text) is not None
    if sniff_state(head, path):
        return 0.0
    if not (text.startswith("{") or is_list):
        return 0.5 if len(_EXCERPT.findall(head)) > 1 else 0.0
    if not is_list and first.endswith("}") and len(first) < len(text.rstrip()):
        return 0.0  # JSON lines
    return 0.8 if _LOSS_KEY.search(text) else 0.15


def read_state(path: Path) -> Iterator[Trace]:
    """The records of ``log_history``; of a truncated file those that are whole."""
    return _read(path, STATE)


def read_json(path: Path) -> Iterator[Trace]:
    """The longest list of records with a loss, or columns of numbers, anywhere in the value."""
    return _read(path, JSON)


def _read(path: Path, name: str) -> Iterator[Trace]:
    points = Points(path, name)
    opening = _LIST if _LIST.match(source.head(path)) else _HISTORY
    if opening is _LIST or _HISTORY.search(source.head(path)):
        for record in records(path, opening, points):
            add_record(points, record)
    elif path.stat().st_size <= _LARGEST_FILE:
        _read_any(path, points)
    yield from points.traces()


def records(path: Path, opening: re.Pattern[str], points: Points) -> Iterator[dict[str, Any]]:
    """The objects of the list after ``opening``, one at a time; damaged ones are left out.

    Memory: one piece of the file and one record.
    """
    pieces = source.chunks(path)
    text, place = _find_opening(pieces, opening)
    more, is_open, num_bad, is_damaged = bool(text), bool(text), 0, False
    while is_open:
        start = text.find("{", place)
        # In a damaged record a bracket may be anything; behind a sound one it ends the list.
        if "]" in text[place : start if start >= 0 else None] and not is_damaged:
            is_open = False
            continue
        if start >= 0:
            try:
                record, place = decode(text, start)
                is_damaged = False
                if isinstance(record, dict):
                    yield record
                continue
            except ValueError:
                if not more or len(text) - start >= _LONGEST_RECORD:
                    place, num_bad, is_damaged = start + 1, num_bad + 1, True
                    continue
        elif not more:
            break
        piece = next(pieces, None)
        more = piece is not None
        text, place = text[start if start >= 0 else len(text) :] + (piece or ""), 0
    if is_open:
        points.note("the file ends inside the list of records (truncated): the whole ones are read")
    elif num_bad:
        points.note(f"damaged records left out: {num_bad}")


def _find_opening(pieces: Iterator[str], opening: re.Pattern[str]) -> tuple[str, int]:
    text = ""
    for piece in pieces:
        text += piece
        match = opening.search(text)
        if match is not None:
            return text, match.end()
        text = text[-4096:]
    return "", 0


def _read_any(path: Path, points: Points) -> None:
    try:
        value = loads("".join(source.chunks(path)))
    except ValueError:
        points.note("no whole JSON value: only whole records are read")
        for record in records(path, re.compile(r"(?=\{)"), points):
            add_record(points, record)
        return
    rows = max(_tables(value), key=len, default=[])
    for row in rows:
        add_record(points, row)


def _tables(value: object, depth: int = 0) -> Iterator[list[dict[str, Any]]]:
    """Every list of objects, and every object of lists of numbers, that has a loss."""
    if depth > 6:
        return
    if isinstance(value, list):
        rows = [item for item in value if isinstance(item, dict)]
        if sum(has_point(row) for row in rows) > 1:
            yield rows
        else:
            for item in rows[:100]:
                yield from _tables(item, depth + 1)
    elif isinstance(value, dict):
        lists = {k: v for k, v in value.items() if isinstance(v, list) and len(v) > 1}
        columns = {k: v for k, v in lists.items() if not isinstance(v[0], (list, dict))}
        if any(decides(column(key)) for key in columns):
            names = list(columns)
            yield [dict(zip(names, row, strict=True)) for row in zip_longest(*columns.values())]
        for item in value.values():
            yield from _tables(item, depth + 1)


READERS = (
    Reader(
        name=STATE,
        wants='JSON with "log_history": [{"loss": ..., "step": ...}, ...] (Hugging Face Trainer)',
        sniff=sniff_state,
        read=read_state,
    ),
    Reader(
        name=JSON,
        wants='JSON with a list of records, or of numbers, under a name such as "loss"',
        sniff=sniff_json,
        read=read_json,
    ),
)
