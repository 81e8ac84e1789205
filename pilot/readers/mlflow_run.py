"""An MLflow run: by its id from a tracking server, or a folder or metric file of the file store.

A metric file has lines ``timestamp value step``; it is ``mlruns/EXPERIMENT/RUN/metrics/NAME``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pilot.errors import LogError
from pilot.readers import mlflow_store, source
from pilot.readers.base import Reader
from pilot.readers.fields import column
from pilot.readers.points import Points
from pilot.readers.record import number
from pilot.series.types import LOSS, Trace

NAME = "mlflow"
SPEC = "mlflow:"
METRICS = "metrics"
_LINE = re.compile(r"^\d{10,16} \S+(?: -?\d+)?$")
Entry = tuple[int, int, str, float]  # timestamp, step, name, value


def sniff(head: str, path: Path) -> float:
    """Sure where every line is ``timestamp value step``."""
    texts = [text for text in head.split("\n")[:50] if text.strip()]
    good = [text for text in texts if _LINE.match(text) and number(text.split()[1]) is not None]
    return 0.95 if texts and len(good) >= max(1, len(texts) - 1) else 0.0


def is_run_folder(path: Path) -> bool:
    """A run of the file store: a folder ``metrics`` with at least one metric file."""
    folder = path / METRICS
    return folder.is_dir() and any(sniff(source.head(f, 4096), f) for f in _files(folder)[:3])


def read(path: Path) -> Iterator[Trace]:
    """One metric file; under a name that says nothing it is taken as a training loss.

    Raises:
        LogError: it is a metric of a run that is no loss (an accuracy, say).
    """
    points = Points(path, NAME)
    name = _metric_name(path)
    if column(name) is None:
        if METRICS in path.parts[:-1]:
            raise LogError(
                path,
                f"the metric {name!r} is no loss, gradient norm or learning rate",
                remedy="give the folder of the run, or its file metrics/loss",
            )
        points.note("the file's name does not say what it holds: taken as a training loss")
        name = LOSS
    _fill(points, _entries(path, name))
    yield from points.traces()


def read_folder(path: Path) -> Iterator[Trace]:
    """All metrics of a run's folder."""
    points = Points(path, NAME)
    folder = path / METRICS
    named = [(f, f.relative_to(folder).as_posix()) for f in _files(folder)]
    points.keys.update(name for _, name in named)
    wanted = [(f, name) for f, name in named if column(name) is not None]
    _fill(points, (entry for f, name in wanted for entry in _entries(f, name)))
    yield from points.traces()


def read_run(spec: str, tracking_uri: str | None = None) -> Iterator[Trace]:
    """A run by ``mlflow:RUN_ID``; without ``tracking_uri`` that of ``MLFLOW_TRACKING_URI``.

    Raises:
        LogError: no such run, no such store, or the server does not answer.
    """
    run_id = spec.removeprefix(SPEC)
    uri, folder = mlflow_store.find(spec, run_id, tracking_uri)
    if folder is not None:
        yield from read_folder(folder)
        return
    from pilot.tracking.hide import hide_text
    from pilot.tracking.store import quiet, reason

    points = Points(spec, NAME)
    with quiet():
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        try:
            client = MlflowClient(tracking_uri=uri)
            names = sorted(client.get_run(run_id).data.metrics)
            points.keys.update(names)
            wanted = [name for name in names if column(name) is not None]
            _fill(points, (e for name in wanted for e in _history(client, run_id, name)))
        except (MlflowException, OSError) as error:
            what = f"the run cannot be read from {hide_text(uri)}: {reason(error)[1]}"
            raise mlflow_store.missing(spec, what) from error
    traces = points.traces()
    if not traces:
        raise mlflow_store.missing(spec, f"the run has no loss among its {len(names)} metrics")
    yield from traces


def _history(client: Any, run_id: str, name: str) -> Iterator[Entry]:
    for metric in client.get_metric_history(run_id, name):
        yield int(metric.timestamp), int(metric.step), name, float(metric.value)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _metric_name(path: Path) -> str:
    """The name below ``metrics/``: it may have slashes."""
    parts = path.parts
    if METRICS in parts[:-1]:
        return "/".join(parts[len(parts) - parts[::-1].index(METRICS) :])
    return path.name


def _entries(path: Path, name: str) -> Iterator[Entry]:
    for text in source.lines(path):
        words = text.split()
        value = number(words[1]) if len(words) in (2, 3) and words[0].isdigit() else None
        if value is not None:
            step = number(words[2]) if len(words) == 3 else 0
            yield int(words[0]), int(step or 0), name, value


def _fill(points: Points, entries: Iterable[Entry]) -> None:
    """In order of time; what was logged for one step in one go becomes one row."""
    for _, step, name, value in sorted(entries, key=lambda entry: entry[:2]):
        place = column(name)
        if place is not None:
            points.entry(step, place, value)


READERS = (
    Reader(
        name=NAME,
        wants="mlflow:RUN_ID, a run's folder, or a metric file (lines: timestamp value step)",
        sniff=sniff,
        read=read,
    ),
)
