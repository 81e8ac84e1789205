"""A folder given as a log: which file in it to read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pilot.errors import LogError
from pilot.readers import mlflow_run, pilot_arm, tfevents
from pilot.readers.refusals import refuse_folder
from pilot.series.types import Trace

STATE, TRAINER_LOG = "trainer_state.json", "trainer_log.jsonl"
TABLES = ("metrics.csv", "log.csv", "metrics.jsonl", "log.jsonl", "output.log")
LOOKED = (STATE, f"checkpoint-*/{STATE}", TRAINER_LOG, "*tfevents*", *TABLES, "metrics/ of MLflow")
_LOG_ENDS = {".log", ".out", ".err", ".txt", ".jsonl", ".json", ".csv", ".tsv"}
_MAX_DEPTH, _MAX_FILES = 4, 20_000
_CHECKPOINT = re.compile(r"checkpoint-(\d+)$")


def traces_of(path: Path) -> list[Trace] | None:
    """The traces of a folder that is a log as a whole (a pilot, an MLflow run, event files).

    None: it is not, and ``file_of`` has to find one.
    """
    arms = pilot_arm.arms(path)
    if arms:
        return [trace for arm in arms for trace in pilot_arm.read_arm(arm)]
    if mlflow_run.is_run_folder(path):
        return list(mlflow_run.read_folder(path))
    if _named(path) is not None:
        return None
    events = [file for file in _walk(path) if "tfevents" in file.name]
    if not events:
        return None
    folders: dict[Path, list[Path]] = {}
    for file in events:
        folders.setdefault(file.parent, []).append(file)
    # The name holds the time of its creation.
    return [
        trace
        for folder in sorted(folders)
        for trace in tfevents.read_files(sorted(folders[folder], key=lambda f: f.name), folder)
    ]


def file_of(path: Path) -> Path:
    """The log of a trainer's output folder.

    Raises:
        LogError: none is known by its name, or there are several.
    """
    found = _named(path)
    if found is not None:
        return found
    closed: list[Path] = []
    files = list(_walk(path, closed))
    known = [file for file in files if file.name in (STATE, TRAINER_LOG, *TABLES)]
    if len(known) == 1:
        return known[0]
    candidates = known or [file for file in files if file.suffix.lower() in _LOG_ENDS]
    if len(candidates) == 1:
        return candidates[0]
    raise refuse_folder(path, LOOKED, candidates, closed)


def _named(path: Path) -> Path | None:
    """The log in the folder itself, or the trainer state of its newest checkpoint."""
    if (path / STATE).is_file():
        return path / STATE
    checkpoints = [
        (int(match[1]), folder / STATE)
        for folder in path.iterdir()
        if (match := _CHECKPOINT.search(folder.name)) and (folder / STATE).is_file()
    ]
    if checkpoints:
        return max(checkpoints)[1]
    return next((path / n for n in (TRAINER_LOG, *TABLES) if (path / n).is_file()), None)


def _walk(path: Path, closed: list[Path] | None = None) -> Iterator[Path]:
    """The files below a folder, not deeper than ``_MAX_DEPTH``, hidden folders left out.

    Folders that may not be read are added to ``closed``.
    """
    stack, num_files = [(path, 0)], 0
    while stack:
        folder, depth = stack.pop()
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            if closed is not None:
                closed.append(folder)
            continue
        for entry in entries:
            if entry.is_file():
                num_files += 1
                if num_files > _MAX_FILES:
                    raise LogError(path, "too many files to search", remedy="give a file of it")
                yield entry
            elif entry.is_dir() and depth < _MAX_DEPTH and not entry.name.startswith("."):
                stack.append((entry, depth + 1))
