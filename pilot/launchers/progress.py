"""Follows a running arm through its files and shows its steps; it only reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from pilot.folder import ArmFolder, Job, count_attempts
from pilot.jsonl import from_json, parse
from pilot.records import StepRecord
from pilot.report.terminal import Terminal


class Progress:
    """Shows the new records of an arm each time it is called."""

    def __init__(self, job: Job, folder: ArmFolder, terminal: Terminal) -> None:
        self.job, self.folder, self.terminal = job, folder, terminal
        self.started = time.monotonic()
        self.offsets: dict[Path, int] = {}

    def __call__(self) -> None:
        """Read on from where the last call ended."""
        attempt = count_attempts(self.folder)
        if attempt == 0:
            return
        for phase, path in (
            ("train", self.folder.steps(attempt)),
            ("cool-down", self.folder.cooldown(attempt)),
        ):
            for record in self._new_records(path):
                elapsed = time.monotonic() - self.started
                self.terminal.arm_progress(self.job, phase, record, elapsed)

    def _new_records(self, path: Path) -> Iterator[StepRecord]:
        if not path.is_file():
            return
        with path.open("rb") as file:
            file.seek(self.offsets.get(path, 0))
            data = file.read()
        end = data.rfind(b"\n") + 1
        self.offsets[path] = self.offsets.get(path, 0) + end
        for line in data[:end].splitlines():
            yield from_json(StepRecord, parse(line.decode("utf-8")))
