"""What an internal process (arm, survey) leaves behind when pilot itself fails: ``error.json``."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from pilot.engines import PARENT_PID, world
from pilot.errors import DiskFull, ExitCode, PilotError, UsageError, is_disk_full
from pilot.jsonl import write_json

# Not one of the public codes: it tells the parent what a full disk keeps it from reading.
EXIT_DISK_FULL = 74  # EX_IOERR of sysexits.h


class RelayedUsageError(UsageError):
    """A usage error that an internal process met, with its own message."""


def run_guarded(work: Callable[[], int], error_file: Path) -> int:
    """Run ``work``; a failure that pilot explains is left in ``error_file`` for the parent."""
    die_with_parent()
    if world.size() == 1:  # of several, one may have failed before another has begun
        error_file.unlink(missing_ok=True)
    try:
        return work()
    except world.Stopped:
        return world.EXIT_PEERS
    except DiskFull as error:
        with contextlib.suppress(OSError):  # the log may lie on the disk that is full
            print(error, file=sys.stderr, flush=True)
        return EXIT_DISK_FULL
    except OSError as error:
        if not is_disk_full(error):
            raise
        with contextlib.suppress(OSError):
            traceback.print_exc()
        return EXIT_DISK_FULL
    except PilotError as error:
        with contextlib.suppress(OSError):
            print(error, file=sys.stderr, flush=True)
        write = world.leave if world.rank() else write_json
        write(error_file, {"message": str(error), "exit_code": int(error.exit_code)})
        return int(error.exit_code)


def die_with_parent() -> None:
    """Let the kernel (Linux) end this process when the pilot that started it dies.

    Elsewhere, and where it is not the pilot's child, nothing happens; the training loop also looks
    at every step whether its parent is still there.
    """
    parent = int(os.environ.get(PARENT_PID, "0"))
    if not parent or not sys.platform.startswith("linux"):
        return
    set_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit("the pilot that started this process is gone")


def raise_left_error(error_file: Path) -> None:
    """Raise what an internal process left behind, as the same kind of failure."""
    try:
        data = json.loads(error_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    kind = RelayedUsageError if data["exit_code"] == ExitCode.USAGE else PilotError
    raise kind(data["message"])
