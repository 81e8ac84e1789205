"""One run of one path, read and judged; a path that cannot be read is a result too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pilot.errors import LogError, UsageError
from pilot.series.types import FAIL, NOTE, WARN, Diagnosis, Event, Trace

_RANK = {FAIL: 0, WARN: 1, NOTE: 2}
_MLFLOW = "mlflow:"  # what the registry of readers expects before a run id
_PILOT = "pilot"  # the format of a pilot's own folder
_MAX_PATH = 240  # of a path within a message
UNREADABLE = Diagnosis(state="unreadable", alarm=False)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A run and its diagnosis.

    ``source`` is the path as it was given, with the run's number where it holds several: it names
    the run everywhere. ``trace`` is none and ``error`` says why where nothing could be read.
    ``flags`` are the words that were needed to read it.
    """

    source: str
    path: str
    trace: Trace | None
    diagnosis: Diagnosis
    error: str = ""
    flags: tuple[str, ...] = ()


def studies(
    paths: Sequence[str],
    *,
    format_name: str | None = None,
    tracking_uri: str | None = None,
    announce: Callable[[str], None] = lambda _: None,
) -> Iterator[Study]:
    """Read and judge each path, in the given order.

    ``-`` is stdin. ``mlflow:RUN_ID`` is a run of an MLflow server; with a tracking URI a bare run
    id is, too. What cannot be read becomes a study in state ``unreadable`` and costs the others
    nothing. ``announce`` is called with each path before it is read.
    """
    for path in paths:
        announce(path)
        try:
            found = _read(path, format_name, tracking_uri)
        except UsageError as error:
            yield _unreadable(path, str(error))
        except OSError as error:
            yield _unreadable(path, f"{path}: {error.strerror or error}")
        else:
            flags = _flags(format_name, tracking_uri)
            yield from (replace(study, flags=flags) for study in _judge(path, found))


def main_event(study: Study) -> Event | None:
    """The event that decides the state; without one, the most severe above a note."""
    found = study.diagnosis
    if found.main is not None:
        return found.events[found.main]
    worst = by_severity(found.events)
    return worst[0] if worst and worst[0].severity != NOTE else None


def by_severity(events: Sequence[Event]) -> list[Event]:
    """The most severe first; within one severity in order of step."""
    return sorted(events, key=lambda e: (_RANK.get(e.severity, 3), e.first_step, e.last_step))


def ordered(study: Study) -> list[Event]:
    """The event that decides first, then the most severe."""
    main = main_event(study)
    return ([main] if main else []) + [
        event for event in by_severity(study.diagnosis.events) if event is not main
    ]


def _read(path: str, format_name: str | None, tracking_uri: str | None) -> list[Trace]:
    from pilot.diagnose.stdin import as_file, is_stream
    from pilot.readers import registry

    if not path:
        raise LogError(path, "the path is empty", remedy="give a file, or . for this folder")
    if is_stream(path):
        with as_file(path) as file:
            try:
                return registry.read(file, format_name)
            except UsageError as error:
                raise UsageError(str(error).replace(str(file), path)) from error
    if tracking_uri is not None and not path.startswith(_MLFLOW) and not Path(path).exists():
        path = f"{_MLFLOW}{path}"
    return registry.read(Path(path), format_name, tracking_uri=tracking_uri)


def _flags(format_name: str | None, tracking_uri: str | None) -> tuple[str, ...]:
    form = ("--format", format_name) if format_name is not None else ()
    return (*form, *(("--tracking-uri", tracking_uri) if tracking_uri is not None else ()))


def judge(trace: Trace, path: str, source: str) -> Study:
    """One run, judged; without a value that can be judged it counts as not readable."""
    from pilot.series.detect import detect

    found = detect(trace)
    if found.state == UNREADABLE.state:
        names = ", ".join([*trace.train, *trace.validations]) or "nothing"
        return _unreadable(source, f"{source}: no loss and no gradient norm in it (found: {names})")
    return Study(source=source, path=path, trace=replace(trace, source=source), diagnosis=found)


def _judge(path: str, traces: Sequence[Trace]) -> Iterator[Study]:
    if not traces:
        yield _unreadable(path, f"{path}: no run was found in it")
    for index, trace in enumerate(traces, 1):
        source = f"{path} (run {index} of {len(traces)})" if len(traces) > 1 else path
        if trace.format == _PILOT and len(traces) > 1:
            source = trace.source  # the arm's folder: it has a name
        yield judge(trace, path, source)


def _unreadable(path: str, error: str) -> Study:
    if len(path) > _MAX_PATH:
        error = error.replace(path, f"{path[: _MAX_PATH // 2]}...{path[-_MAX_PATH // 2 :]}")
    return Study(source=path, path=path, trace=None, diagnosis=UNREADABLE, error=error)
