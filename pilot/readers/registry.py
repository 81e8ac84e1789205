"""All formats, and reading a log of any of them: the surest reader that finds a point wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pilot.errors import LogError
from pilot.readers import (
    csv_table,
    json_lines,
    json_records,
    mlflow_run,
    printed_dicts,
    source,
    tfevents,
)
from pilot.readers.base import Reader
from pilot.readers.ending import ENDS, ending
from pilot.readers.folders import file_of, traces_of
from pilot.readers.hints import hint, is_wandb_summary
from pilot.readers.refusals import (
    PIPE,
    kind_of,
    refuse_empty,
    refuse_format,
    refuse_kind,
    refuse_summary,
    refuse_text,
    refuse_unreadable,
)
from pilot.readers.text_formats import READERS as TEXT_READERS
from pilot.series.types import Trace

READERS: tuple[Reader, ...] = (
    *json_records.READERS,
    *json_lines.READERS,
    *printed_dicts.READERS,
    *csv_table.READERS,
    *tfevents.READERS,
    *mlflow_run.READERS,
    *TEXT_READERS,
)
FORMATS: tuple[str, ...] = tuple(reader.name for reader in READERS)
# Below LIKELY a reader is not tried; below SURE further places of the file are looked at; from
# CERTAIN on no other reader is asked.
LIKELY, HALF_SURE, SURE, CERTAIN = 0.2, 0.5, 0.9, 0.97
FEW, MANY = 4, 16  # further places: where the head has lines of a known format, few will do


def read(path: Path, format: str | None = None, *, tracking_uri: str | None = None) -> list[Trace]:
    """The runs of a log: a file, a trainer's folder, or ``mlflow:RUN_ID``.

    Raises:
        LogError: it cannot be read, is empty, or is no training log (what was looked for, what
            was found); a format of that name does not exist.
    """
    chosen = _by_name(path, format) if format is not None else None
    if str(path).startswith(mlflow_run.SPEC):
        return list(mlflow_run.read_run(str(path), tracking_uri))
    try:
        if path.is_dir():
            whole = traces_of(path) if format in (None, tfevents.NAME, mlflow_run.NAME) else None
            if whole:
                return whole
            path = file_of(path)
        return _read_file(path, chosen)
    except OSError as error:
        raise refuse_unreadable(path, error) from error


def _by_name(path: Path, name: str) -> Reader:
    for reader in READERS:
        if reader.name == name:
            return reader
    names = ", ".join(FORMATS)
    raise LogError(path, f"there is no format {name!r}", remedy=f"one of: {names}")


def _read_file(path: Path, chosen: Reader | None) -> list[Trace]:
    if path.exists() and not path.is_file():
        raise refuse_kind(path, PIPE)
    with source.watched() as seen:
        return _with_notes(_read_watched(path, chosen, seen), path, seen)


def _with_notes(traces: list[Trace], path: Path, seen: source.Seen) -> list[Trace]:
    """What could not be read is said of every run; how the file ends, of its last one."""
    if seen.notes:
        traces = [replace(trace, notes=(*seen.notes, *trace.notes)) for trace in traces]
    reader = next((reader for reader in READERS if reader.name == traces[-1].format), None)
    if reader is None or not seen.tail:
        return traces
    sniff = reader.sniff
    end = ending(seen.tail, lambda text: sniff(text, path) >= LIKELY)
    if end:
        traces[-1] = replace(traces[-1], notes=(f"{ENDS}{end}", *traces[-1].notes))
    return traces


def _read_watched(path: Path, chosen: Reader | None, seen: source.Seen) -> list[Trace]:
    data = source.start(path)
    if not data:
        raise refuse_empty(path, ", ".join(seen.notes))
    is_events = tfevents.is_event_file(path)
    kind = "" if is_events else kind_of(data)
    if kind:
        raise refuse_kind(path, kind)
    head = "" if is_events else source.head(path)
    if not is_events and not head.strip() and path.stat().st_size < len(head) + 8:
        raise refuse_empty(path)
    if chosen is None and is_wandb_summary(path, head):
        raise refuse_summary(path)
    for reader in (chosen,) if chosen is not None else ranked(head, path):
        traces = list(reader.read(path))
        if traces:
            return traces
    if chosen is not None:
        raise refuse_format(path, chosen, head)
    raise refuse_text(path, head, READERS, ", ".join([*seen.notes]) or hint(path, head))


def ranked(head: str, path: Path) -> Sequence[Reader]:
    """The readers that may know the file, surest first; the order of ``READERS`` breaks ties."""
    scores: dict[str, float] = {}
    for reader in READERS:
        scores[reader.name] = reader.sniff(head, path)
        if scores[reader.name] >= CERTAIN:
            return [reader]
    if (best := max(scores.values())) < SURE:
        for text in source.windows(path, count=MANY if best < HALF_SURE else FEW):
            for reader in READERS:
                scores[reader.name] = max(scores[reader.name], reader.sniff(text, path))
    likely = [reader for reader in READERS if scores[reader.name] >= LIKELY]
    return sorted(likely, key=lambda reader: -scores[reader.name])
