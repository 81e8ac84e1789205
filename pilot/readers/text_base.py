"""How a text format becomes a reader: a pattern of its own lines, and a loop over the lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pilot.readers.base import Reader
from pilot.readers.points import MEAN, Points
from pilot.readers.source import lines
from pilot.readers.text_skips import noticed
from pilot.series.types import Trace

Feed = Callable[[Points, Iterable[str]], None]
"""Adds what the lines of a log hold to the points, in the order of the lines."""

# Three lines in the format of one trainer are no accident; one may be quoted in something else.
CERTAIN_LINES = 3
CERTAIN, LIKELY, HINTED = 0.92, 0.7, 0.4


def text_reader(
    name: str,
    wants: str,
    line: re.Pattern[str],
    feed: Feed,
    *,
    hint: re.Pattern[str] | None = None,
    certain: float = CERTAIN,
    objective: str = "",
    repeats: str = MEAN,
) -> Reader:
    """Build a reader of a text format.

    ``line`` is searched for in the head of a file: three hits are ``certain``, one or two likely.
    ``hint`` is what such logs hold before the first step (a banner, printed arguments): it makes
    the format possible where no step was seen yet. ``objective`` "" leaves it to the keys that
    ``feed`` notes in the points.
    """

    def sniff(head: str, path: Path) -> float:
        hits = count(line, head, CERTAIN_LINES)
        if hits >= CERTAIN_LINES:
            return certain
        if hits:
            return min(LIKELY, certain)
        return HINTED if hint is not None and hint.search(head) else 0.0

    def read(path: Path) -> Iterator[Trace]:
        points = Points(path, name, objective=objective, repeats=repeats)
        feed(points, noticed(points, lines(path)))
        yield from points.traces()

    return Reader(name=name, wants=wants, sniff=sniff, read=read)


def count(pattern: re.Pattern[str], text: str, limit: int) -> int:
    """Count the matches of a pattern in a text, at most ``limit`` of them."""
    found = 0
    for _ in pattern.finditer(text):
        found += 1
        if found >= limit:
            break
    return found
