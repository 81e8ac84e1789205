"""The processes of one arm: which of them this one is, and how it ends when another one failed.

Several processes are started by ``pilot/launchers/ranks.py`` with torchrun's own agent, which sets
``RANK`` and ``WORLD_SIZE``. Nothing here imports torch.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pilot.errors import UsageError
from pilot.jsonl import write_json

# What torchrun sets for its workers; an arm of one process must not take itself for one of them.
TORCHRUN_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "ROLE_NAME",
    "MASTER_ADDR",
    "MASTER_PORT",
)
# What says, under torchrun, accelerate and MPI, that this is one of several processes.
SIZE_VARIABLES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")

# Not one of the public codes: another process of the arm has failed, or this one has and said so.
EXIT_PEERS = 75
# The agent looks five times a second; it stops the others as soon as one has ended.
_WAIT_SECS = 60.0
_LOST = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "remote process has exited",
    "ncclremoteerror",
    "socket closed",
)


class PeerLost(Exception):
    """Another process of the arm is gone: what happened is known there, not here."""


class Stopped(BaseException):
    """The agent ends this process; no ``except Exception`` of the user's code may hold it up."""


def rank() -> int:
    """Which of the arm's processes this is, from 0; only 0 writes files."""
    return _number("RANK", 0) if size() > 1 else 0


def size() -> int:
    """Processes of the arm."""
    return _number("WORLD_SIZE", 1)


def in_process() -> str:
    """Which of several processes this one is, to go before a message."""
    return f"in process {rank()} of {size()}: " if size() > 1 else ""


def started_by_others(environment: Mapping[str, str]) -> str:
    """The variable that says that somebody started this program several times, or nothing."""
    for name in SIZE_VARIABLES:
        if environment.get(name, "").strip().isdigit() and int(environment[name]) > 1:
            return f"{name}={environment[name]}"
    return ""


def refuse_many(environment: Mapping[str, str]) -> None:
    """Refuse to pilot where torchrun, accelerate or MPI has started pilot several times.

    Raises:
        UsageError: each of them would start arms of its own.
    """
    found = started_by_others(environment)
    if found:
        raise UsageError(
            f"pilot was started as one of several processes ({found})\n"
            "    rule:   pilot is one process; it starts those of an arm by itself\n"
            "    remedy: python -m pilot +recipe=NAME launcher.num_processes=N, without torchrun, "
            "accelerate launch or mpirun"
        )


def is_lost_peer(error: BaseException | None) -> bool:
    """Whether an error only says that another process of the arm is gone.

    A time that is over is no lost peer: the other one lives and does not answer.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen and size() > 1:
        seen.add(id(error))
        text = str(error).lower()
        if isinstance(error, PeerLost):
            return True
        if isinstance(error, (RuntimeError, ConnectionError)) and any(w in text for w in _LOST):
            return True
        error = error.__cause__ or error.__context__
    return False


def wait_for_the_agent() -> None:
    """Wait to be ended because another process failed; returns when nobody does so."""
    time.sleep(_WAIT_SECS)


def leave(path: Path, value: object) -> None:
    """Write ``value`` where process 0 would, unless a file is there: the first failure tells."""
    own = path.with_name(f"{path.stem}.{rank()}{path.suffix}")
    write_json(own, value)
    with contextlib.suppress(FileExistsError):
        os.link(own, path)
    own.unlink(missing_ok=True)


@contextmanager
def stoppable() -> Iterator[None]:
    """While it is open, SIGTERM of a process of several raises ``Stopped``: files are closed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped

    if size() == 1:
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def end_process(code: int) -> int:
    """Leave a process of several without waiting for the others; one of its own just returns.

    The threads of a process group whose peer is gone abort an ordinary end.
    """
    if size() == 1:
        return code
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else otherwise
