"""Processes of this machine: each in its own group, none left behind however the parent ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pilot.engines import PARENT_PID
from pilot.engines.world import TORCHRUN_VARIABLES

POLL_SECS = 0.2
PILOT = (sys.executable, "-m", "pilot")
_RANKS = (sys.executable, "-m", "pilot.launchers.ranks")
_ASK_SECS = 5.0


class Terminated(SystemExit):
    """SIGTERM: 143 is what a shell shows (128 + 15)."""

    def __init__(self) -> None:
        super().__init__(143)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a process ended: its return code (negative: the signal), or that its time was up."""

    code: int
    timed_out: bool


class Child:
    """One ``python -m pilot WORDS`` in a process group of its own.

    ``command`` is another program that takes the same words.
    """

    def __init__(
        self,
        words: Sequence[str],
        log: Path,
        cwd: Path,
        *,
        timeout_secs: float | None,
        num_threads: int | None,
        command: Sequence[str] = PILOT,
    ) -> None:
        """Start it; its output goes to the end of ``log``."""
        self.deadline = time.monotonic() + timeout_secs if timeout_secs else None
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [*command, *words],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=cwd,
                env=_environment(num_threads),
                start_new_session=True,
            )

    def poll(self) -> Ended | None:
        """How it ended, or None while it runs; one whose time is up is stopped."""
        if self._process.poll() is not None:
            code = self._process.returncode
            self.kill()  # what it left of its group
            return Ended(code=code, timed_out=False)
        if self.deadline and time.monotonic() > self.deadline:
            return Ended(code=self.kill(), timed_out=True)
        return None

    def kill(self) -> int:
        """End the whole group: ask, wait five seconds, then kill."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                break
            try:
                self._process.wait(timeout=_ASK_SECS)
            except subprocess.TimeoutExpired:
                continue
        return self._process.wait()


@contextmanager
def stop_signals() -> Iterator[Callable[[], None]]:
    """Collect SIGTERM and SIGINT; the function given raises what arrived, where that is safe."""
    caught: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)

    def check() -> None:
        if caught:
            raise KeyboardInterrupt if caught[0] == signal.SIGINT else Terminated

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def command_of(num_processes: int) -> tuple[str, ...]:
    """What is given the words of a run of so many processes."""
    return PILOT if num_processes == 1 else (*_RANKS, str(num_processes))


def run_process(
    words: Sequence[str],
    log: Path,
    cwd: Path,
    *,
    timeout_secs: float | None,
    num_threads: int | None,
    num_processes: int = 1,
) -> Ended:
    """Run ``python -m pilot WORDS``, in one process or several, to its end."""
    with stop_signals() as check:
        child = Child(
            words,
            log,
            cwd,
            timeout_secs=timeout_secs,
            num_threads=num_threads,
            command=command_of(num_processes),
        )
        try:
            while True:
                ended = child.poll()
                if ended is not None:
                    return ended
                check()
                time.sleep(POLL_SECS)
        finally:
            child.kill()


def _environment(num_threads: int | None) -> dict[str, str]:
    own = {PARENT_PID: str(os.getpid()), "PYTHONUNBUFFERED": "1"}
    environment = {k: v for k, v in os.environ.items() if not _is_torchruns(k)} | own
    environment.setdefault("TOKENIZERS_PARALLELISM", "false")
    if num_threads:
        environment["OMP_NUM_THREADS"] = str(num_threads)
    package_root = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(
        [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    return environment


def _is_torchruns(name: str) -> bool:
    """Whether a variable is one that torchrun sets for its own workers."""
    return name in TORCHRUN_VARIABLES or name.startswith("TORCHELASTIC_")
