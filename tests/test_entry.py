"""What an internal process returns when something is wrong with the disk."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from pilot.entry import EXIT_DISK_FULL, run_guarded


def _raising(error: OSError) -> int:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError("65536 requested and 8192 written"),  # numpy
    ],
)
def test_a_full_disk_is_told_by_its_code(error: OSError, tmp_path: Path) -> None:
    assert run_guarded(lambda: _raising(error), tmp_path / "error.json") == EXIT_DISK_FULL


def test_other_errors_are_not_taken_for_one(tmp_path: Path) -> None:
    for error in (OSError(errno.EACCES, "denied"), OSError("odd"), FileNotFoundError("x")):
        with pytest.raises(OSError, match=r"denied|odd|x"):
            run_guarded(lambda error=error: _raising(error), tmp_path / "error.json")  # type: ignore[misc]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_numpy_on_a_device_that_is_full(tmp_path: Path) -> None:
    def work() -> int:
        with Path("/dev/full").open("wb") as file:
            np.arange(100_000).tofile(file)
        return 0

    assert run_guarded(work, tmp_path / "error.json") == EXIT_DISK_FULL
