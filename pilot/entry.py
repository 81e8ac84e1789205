"""What an internal process (arm, survey) leaves behind when pilot itself fails: ``error.json``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from pilot.errors import DiskFull, ExitCode, PilotError, UsageError
from pilot.jsonl import write_json

# Not one of the public codes: it tells the parent what a full disk keeps it from reading.
EXIT_DISK_FULL = 74  # EX_IOERR of sysexits.h


class RelayedUsageError(UsageError):
    """A usage error that an internal process met, with its own message."""


def run_guarded(work: Callable[[], int], error_file: Path) -> int:
    """Run ``work``; a failure that pilot explains is left in ``error_file`` for the parent."""
    error_file.unlink(missing_ok=True)
    try:
        return work()
    except DiskFull as error:
        print(error, file=sys.stderr)
        return EXIT_DISK_FULL
    except PilotError as error:
        print(error, file=sys.stderr)
        write_json(error_file, {"message": str(error), "exit_code": int(error.exit_code)})
        return int(error.exit_code)


def raise_left_error(error_file: Path) -> None:
    """Raise what an internal process left behind, as the same kind of failure."""
    try:
        data = json.loads(error_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    kind = RelayedUsageError if data["exit_code"] == ExitCode.USAGE else PilotError
    raise kind(data["message"])
