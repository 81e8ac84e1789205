"""The word as a process: a reader that goes away, Ctrl-C, the width, what is loaded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import environment


@pytest.mark.parametrize("words", [["--json"], []])
def test_a_reader_that_goes_away_is_no_error(words: list[str], logs: Path) -> None:
    paths = ["nan.json"] * 60  # more than a pipe holds
    process = subprocess.Popen(
        [sys.executable, "-m", "pilot", "diagnose", *paths, *words],
        cwd=logs,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 3


def test_ctrl_c_is_not_a_crash(logs: Path) -> None:
    fifo = logs / "slow.log"
    os.mkfifo(fifo)  # reading waits here for ever
    process = subprocess.Popen(
        [sys.executable, "-c", _ANNOUNCED, "diagnose", "slow.log"],
        cwd=logs,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_interrupts,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr == "pilot: interrupted\n"


def _hear_interrupts() -> None:
    """A process that was started in the background may have inherited that it ignores them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


_ANNOUNCED = """
import sys
from pilot.cli.main import main
from pilot.readers import registry
def read(path, format=None, **more):
    print("ready", flush=True)
    return list(open(path))
registry.read = read
sys.exit(main())
"""


@pytest.mark.parametrize("columns", ["40", "200"])
def test_the_width_of_the_terminal_counts(columns: str, logs: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pilot", "diagnose", "nan.json"],
        cwd=logs,
        env={**environment(), "COLUMNS": columns},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    lines = [line for line in done.stdout.splitlines() if "python -m pilot" not in line]
    assert max(map(len, lines)) <= min(int(columns), 110)


def test_nothing_heavy_is_loaded(logs: Path) -> None:
    code = (
        "import sys; from pilot.cli.main import main\n"
        "code = main(['diagnose', 'nan.json'])\n"
        "heavy = {'torch', 'mlflow', 'matplotlib', 'pandas', 'scipy', 'transformers'}\n"
        "print(code, sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=logs,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "3 []"
