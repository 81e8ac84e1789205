"""Follows a running arm through its files and shows its steps; it only reads."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from pilot.folder import BASELINE, ArmFolder, Job, PilotFolder, count_attempts, read_json
from pilot.jsonl import from_json, parse, read_jsonl
from pilot.records import StepRecord, join_attempts
from pilot.report.terminal import Terminal
from pilot.series.monitor import Monitor
from pilot.series.types import NOTE
from pilot.watching import point_of, watch

_COOLDOWN = "cool-down"  # its rate falls to 0: the window tier does not look at it


class Progress:
    """Shows the new records of an arm each time it is called."""

    def __init__(self, job: Job, folder: ArmFolder, terminal: Terminal) -> None:
        self.job, self.folder, self.terminal = job, folder, terminal
        self.started = time.monotonic()
        self.offsets: dict[Path, int] = {}
        self.monitor: Monitor | None = None
        self.said: set[tuple[str, int]] = set()

    def __call__(self) -> None:
        """Read on from where the last call ended."""
        attempt = count_attempts(self.folder)
        if attempt == 0:
            return
        for phase, path in (
            ("train", self.folder.steps(attempt)),
            (_COOLDOWN, self.folder.cooldown(attempt)),
            ("extension", self.folder.extension(attempt)),
        ):
            for record in self._new_records(path):
                elapsed = time.monotonic() - self.started
                self.terminal.arm_progress(self.job, phase, record, elapsed)
                if self.job.arm == BASELINE and phase != _COOLDOWN:
                    self._watch(record, attempt)

    def _watch(self, record: StepRecord, attempt: int) -> None:
        """Say each event of the window tier that is more than a note, once, as it is found."""
        if self.monitor is None:
            survey = read_json(PilotFolder(self.folder.root.parent.parent).survey)
            paths = [self.folder.steps(number) for number in range(1, attempt)]
            earlier = join_attempts(read_jsonl(path, StepRecord) for path in paths)
            before = (known for known in earlier if known.step < record.step)
            self.monitor = watch(before, str(survey.get("objective", "lm")))
        for event in self.monitor.update(point_of(record)):
            name = (event.kind, event.first_step)
            if event.severity != NOTE and name not in self.said:
                self.said.add(name)
                self.terminal.arm_event(self.job, event)

    def _new_records(self, path: Path) -> Iterator[StepRecord]:
        """The records since the last call; from the first one on where the file is a new one.

        An arm whose fork was refused begins again in a file of the same name. Where that has grown
        past the place of the last call, a line is cut: it is left out, this is only a display.
        """
        if not path.is_file():
            return
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = self.offsets.get(path, 0)
            begin = begin if begin <= size else 0
            file.seek(begin)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self.offsets[path] = begin + end
        for line in data[:end].splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                yield from_json(StepRecord, parse(line.decode("utf-8")))
