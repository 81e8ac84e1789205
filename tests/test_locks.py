"""Locks: one holder at a time, freed by its death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pilot.errors import ExitCode, FolderError
from pilot.locks import hold

HOLDER = (
    "import sys, time; from pathlib import Path; from pilot.locks import hold\n"
    "with hold(Path(sys.argv[1]), 'x'):\n"
    "    print('held', flush=True); time.sleep(60)\n"
)


def test_a_second_holder_is_refused_until_the_first_dies(tmp_path: Path) -> None:
    path = tmp_path / "pilot.lock"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(FolderError, match=f"process {process.pid}") as caught, hold(path, "y"):
            pass
        assert caught.value.exit_code == ExitCode.USAGE
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with hold(path, "y", wait_secs=5.0):
        assert path.read_text() == str(os.getpid())
    with hold(path, "y"):
        pass
