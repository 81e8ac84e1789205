"""Several processes of one run: how their end is told, and that two runs do not meet."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pilot.engines.world import EXIT_PEERS, TORCHRUN_VARIABLES
from pilot.launchers.processes import Child, command_of
from pilot.launchers.ranks import first_code
from tests.conftest import environment

TERM, KILL = -signal.SIGTERM, -signal.SIGKILL


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ({1: KILL, 0: TERM}, KILL),
        ({0: TERM, 1: KILL}, KILL),
        ({0: EXIT_PEERS, 1: KILL}, KILL),
        ({0: 74, 1: EXIT_PEERS}, 74),
        ({0: 2, 1: TERM}, 2),
        ({1: -signal.SIGSEGV, 0: EXIT_PEERS}, -signal.SIGSEGV),
        ({1: EXIT_PEERS, 0: TERM}, EXIT_PEERS),
        ({1: TERM, 0: TERM}, TERM),
    ],
)
def test_the_first_failure_explains_the_others(codes: dict[int, int], expected: int) -> None:
    assert first_code(codes) == expected


def test_one_process_needs_no_agent() -> None:
    assert command_of(1) == (sys.executable, "-m", "pilot")
    assert command_of(3)[-2:] == ("pilot.launchers.ranks", "3")


def test_an_arm_of_one_process_does_not_take_itself_for_one_of_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*TORCHRUN_VARIABLES, "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "1")
    show = "import os; print(*sorted(k for k in os.environ if 'RANK' in k or 'TORCHEL' in k), '.')"
    child = Child(
        [], tmp_path / "log", tmp_path, timeout_secs=60, num_threads=1,
        command=(sys.executable, "-c", show),
    )  # fmt: skip
    while child.poll() is None:
        pass
    assert (tmp_path / "log").read_text().split() == ["."]


@pytest.mark.slow
def test_two_runs_at_once_do_not_meet(tmp_path: Path) -> None:
    words = [*command_of(2), "--version"]
    runs = [
        subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for run in runs:
        out, _ = run.communicate(timeout=120)
        assert run.returncode == 0 and out.count("pilot ") == 2
