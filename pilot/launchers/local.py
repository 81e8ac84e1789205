"""Runs arms as processes of this machine: one at a time, each in its own process group.

An arm that a signal killed is started again from its newest checkpoint, at most ``max_restarts``
times; a Python exception is an outcome and never retried. When the kernel killed it for memory,
that is an outcome as well. However the parent ends, no arm stays behind: it stops its group on
SIGTERM and SIGINT, and an arm whose parent is gone ends by itself at its next step.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pilot.config import Launcher
from pilot.engines import PARENT_PID
from pilot.entry import EXIT_DISK_FULL, raise_left_error
from pilot.errors import ArmCrashed, DiskFull
from pilot.folder import ArmFolder, Job, count_attempts, read_json
from pilot.jsonl import from_json, parse, write_json
from pilot.memory import num_oom_kills
from pilot.records import Outcome, StepRecord
from pilot.report.terminal import Terminal

_POLL_SECS = 0.2


class Terminated(SystemExit):
    """SIGTERM: 143 is what a shell shows (128 + 15)."""

    def __init__(self) -> None:
        super().__init__(143)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a process ended: its return code (negative: the signal), or that its time was up."""

    code: int
    timed_out: bool


def run_arm(
    job: Job, folder: ArmFolder, launcher: Launcher, terminal: Terminal, cwd: Path
) -> Outcome:
    """Run an arm until it has an outcome.

    Raises:
        UsageError: what the arm's process refused.
        DiskFull, ArmCrashed: pilot or the machine failed; what was measured is kept.
    """
    started = time.monotonic()
    terminal.arm_started(job, job.stop_step - job.start_step + job.cooldown_steps)
    outcome = None
    for _ in range(launcher.max_restarts + 1):
        kills = num_oom_kills()
        ended = run_process(
            ["arm", str(folder.root)], folder.log, launcher, cwd, _Progress(job, folder, terminal)
        )
        if folder.outcome.is_file():
            outcome = from_json(Outcome, read_json(folder.outcome))
            break
        if num_oom_kills() > kills:
            outcome = _killed_for_memory(folder)
            break
        _raise_unless_signal(job, folder, ended, launcher)
        terminal.warn(
            f"{job.title}: killed by signal {-ended.code}; starting again from its newest state"
        )
    terminal.arm_finished(job, outcome, time.monotonic() - started)
    if outcome is None:
        what = f"killed by a signal {launcher.max_restarts + 1} times"
        raise ArmCrashed(job.arm, what, folder.log)
    return outcome


def run_process(
    words: list[str],
    log: Path,
    launcher: Launcher,
    cwd: Path,
    poll: Callable[[], None] = lambda: None,
) -> Ended:
    """Run ``python -m pilot WORDS`` in its own process group, calling ``poll`` meanwhile."""
    deadline = time.monotonic() + launcher.timeout_secs if launcher.timeout_secs else None
    with log.open("ab") as file, _signals() as stop:
        process = subprocess.Popen(
            [sys.executable, "-m", "pilot", *words],
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=cwd,
            env=_environment(launcher),
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                poll()
                if stop:
                    raise KeyboardInterrupt if stop[0] == signal.SIGINT else Terminated
                if deadline and time.monotonic() > deadline:
                    return Ended(code=_kill(process), timed_out=True)
                time.sleep(_POLL_SECS)
            poll()
            return Ended(code=process.returncode, timed_out=False)
        finally:
            _kill(process)


def _environment(launcher: Launcher) -> dict[str, str]:
    environment = {**os.environ, PARENT_PID: str(os.getpid()), "PYTHONUNBUFFERED": "1"}
    environment.setdefault("TOKENIZERS_PARALLELISM", "false")
    if launcher.num_threads:
        environment["OMP_NUM_THREADS"] = str(launcher.num_threads)
    package_root = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(
        [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    return environment


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT instead of dying inside a wait; restored afterwards."""
    caught: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _kill(process: subprocess.Popen[bytes]) -> int:
    """End the whole process group: ask, wait 5 seconds, then kill."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            continue
    return process.wait()


def _killed_for_memory(folder: ArmFolder) -> Outcome:
    last = _newest_record(folder)
    outcome = Outcome(
        status=Outcome.OUT_OF_MEMORY,
        last_step=last.step if last else 0,
        where="the whole process",
        step=last.step + 1 if last else None,
        error_type="SIGKILL",
        message="the kernel killed the process because memory ran out",
    )
    write_json(folder.outcome, outcome)
    return outcome


def _raise_unless_signal(job: Job, folder: ArmFolder, ended: Ended, launcher: Launcher) -> None:
    if ended.timed_out:
        what = f"launcher.timeout_secs = {launcher.timeout_secs} is over"
        raise ArmCrashed(job.arm, what, folder.log)
    if ended.code == EXIT_DISK_FULL:
        raise DiskFull(folder.root, OSError(28, "No space left on device"))
    raise_left_error(folder.error)
    if ended.code >= 0:
        raise ArmCrashed(job.arm, f"exit code {ended.code}", folder.log)


def _newest_record(folder: ArmFolder) -> StepRecord | None:
    lines: list[str] = []
    for number in range(1, count_attempts(folder) + 1):
        lines.extend(folder.steps(number).read_text(encoding="utf-8").splitlines())
    return from_json(StepRecord, parse(lines[-1])) if lines else None


class _Progress:
    """Reads an arm's new records and shows them; it only looks at files."""

    def __init__(self, job: Job, folder: ArmFolder, terminal: Terminal) -> None:
        self.job, self.folder, self.terminal = job, folder, terminal
        self.started = time.monotonic()
        self.offsets: dict[Path, int] = {}

    def __call__(self) -> None:
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
