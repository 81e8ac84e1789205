"""The contract of a reader: does this file look like mine, and what does it hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pilot.series.types import Trace


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A format by name.

    ``sniff(head, path)`` gets the first 256 KiB of the file as text (decoded, without ANSI codes)
    and returns how sure it is, 0 (not mine) to 1. ``read(path)`` yields one trace per run in the
    file (several for concatenated runs), memory bounded by the number of points, not of bytes.
    ``wants`` says in one line what the reader looks for (for the message when nothing is found).

    Raises (read):
        LogError: the file is of this format but broken beyond use.
    """

    name: str
    wants: str
    sniff: Callable[[str, Path], float]
    read: Callable[[Path], Iterator[Trace]]
