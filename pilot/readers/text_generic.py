"""Any log whose lines name a step (or epoch) and a loss, when no known format fits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

from pilot.readers.base import Reader
from pilot.readers.points import ColumnKey, Points
from pilot.readers.record import EVIDENCE_ROWS
from pilot.readers.source import head, lines
from pilot.readers.text_line import Line, Reading, keys, read_line
from pilot.readers.text_names import NUMBER, add, as_epoch_mean, has
from pilot.readers.text_skips import noticed
from pilot.series.types import EPOCH, LOSS, Trace

SURE, SHORT = 0.3, 0.25
"""Above "not mine" and below every format with a name of its own."""

MIN_LINES, MAX_SAID = 3, 500
MAX_LINE_CHARS = 4000
_EPOCH_KEY = ColumnKey(False, EPOCH)
_ACCUMULATION = re.compile(r"\bgradient_accumulation(?:_steps)?\s+(\d+)\s*$")
_ARGUMENTS = ("Namespace(", "args: ", "Args: ", "config: ")
_PRINTED = re.compile(rf"[\w\])]\s*[:=]\s*{NUMBER}(?!\w)")
_DICT = re.compile(r"['\"](?:loss|eval_loss)['\"]\s*:")


def feed(points: Points, lines: Iterable[str], *, epochs_are_steps: bool = True) -> None:
    """Add the lines that name a step or epoch and a loss.

    A line without a step stands at its epoch, if ``epochs_are_steps``; once lines had a step, its
    training loss is the mean of an epoch, at the step before it. Where ``loss at N`` counts
    micro-batches and the validations count updates (the log prints its ``gradient_accumulation``),
    the validations are put on the axis of the losses.
    """
    accumulation, counts_micro_batches = 1, False
    reading = Reading()
    has_steps = False
    for line in noticed(points, lines):
        if "gradient_accumulation" in line and (match := _ACCUMULATION.search(line)) is not None:
            accumulation = int(match.group(1))
        said = reading.read(line) if _has_loss(line) else None
        if said is None:
            continue
        step = said.step
        if step is not None:
            has_steps = has_steps or has(said.found, LOSS)
        elif has_steps:
            said.found[:] = [(as_epoch_mean(key), value) for key, value in said.found]
        elif epochs_are_steps and said.epoch is not None:
            step, points.axis = said.epoch, "epochs"
        elif said.epoch is None and not len(points):
            continue
        if has(said.found, LOSS):
            counts_micro_batches = counts_micro_batches or "loss at " in line
        elif counts_micro_batches and " at step " in line and step is not None:
            step *= accumulation
        if said.epoch is not None:
            said.found.append((_EPOCH_KEY, said.epoch))
        if add(points, step, said.found) and has_steps:
            points.axis = "steps"
        if len(points) <= EVIDENCE_ROWS:
            points.keys.update(keys(line))


def _has_loss(line: str) -> bool:
    if len(line) >= MAX_LINE_CHARS or line.startswith(_ARGUMENTS):
        return False
    return "loss" in line or "Loss" in line or "LOSS" in line


def sniff(text: str, path: Path) -> float:
    """How sure: 0.3 for three or more lines with a loss whose steps rise, 0.25 for one or two.

    Printed dictionaries and JSON are other formats'; prose that mentions a step and a loss has no
    rising steps. One or two lines must look printed: two of ``name: number``, or columns.
    """
    said = list(islice(_understood(text.split("\n")), MAX_SAID))
    places = _places([line for line in said if has(line.found, LOSS)])
    if len(set(places)) < MIN_LINES:
        places = _places(said)
    if 0 < len(set(places)) < MIN_LINES:
        return SHORT if all(b >= a for a, b in pairwise(places)) and _looks_printed(text) else 0.0
    rises = sum(b > a for a, b in pairwise(places))
    falls = sum(b < a for a, b in pairwise(places))
    return SURE if rises >= MIN_LINES - 1 and falls <= rises / 3 else 0.0


def _looks_printed(text: str) -> bool:
    """Whether a line with a place and a loss has two of ``name: number``, or three bars."""
    return any(
        len(_PRINTED.findall(line)) >= 2 or line.count("|") >= 3
        for line in text.split("\n")
        if _is_candidate(line)
        and (said := read_line(line)) is not None
        and _place(said) is not None
    )


def epochs_are_steps(text: str) -> bool:
    """Return whether lines with an epoch alone are one per epoch (else they are mere records)."""
    some = islice(_understood(text.split("\n")), MAX_SAID)
    said = [line for line in some if has(line.found, LOSS)]
    epochs = [line.epoch for line in said if line.step is None and line.epoch is not None]
    return all(epoch == int(epoch) for epoch in epochs) and len(set(epochs)) > len(epochs) / 2


def _places(said: Sequence[Line]) -> list[tuple[float, float]]:
    """The epoch and step of each line, so that they can be compared; 0 for what is not named."""
    stepped = [line for line in said if line.step is not None]
    if not stepped:
        return [(line.epoch, 0.0) for line in said if line.epoch is not None]
    has_epochs = all(line.epoch is not None for line in stepped)
    return [((line.epoch or 0.0) if has_epochs else 0.0, line.step or 0.0) for line in stepped]


def _place(line: Line) -> float | None:
    return line.epoch if line.step is None else line.step


def _is_candidate(line: str) -> bool:
    return _has_loss(line) and not line.lstrip().startswith("{") and not _DICT.search(line)


def _understood(text: Iterable[str]) -> Iterator[Line]:
    reading = Reading()
    for line in text:
        if _is_candidate(line):
            said = reading.read(line)
            if said is not None:
                yield said


def read(path: Path) -> Iterator[Trace]:
    """Yield the runs of the log (see :func:`feed`)."""
    points = Points(path, "text")
    feed(points, lines(path), epochs_are_steps=epochs_are_steps(head(path)))
    yield from points.traces()


READER = Reader(
    name="text",
    wants="three or more lines that name a rising step (or epoch) and a loss, in any order",
    sniff=sniff,
    read=read,
)
