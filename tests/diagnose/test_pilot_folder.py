"""The folder of a pilot is a log of several runs, each with the name of its arm."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import RunPilot
from tests.factories import write_pilot


def test_arms_are_called_by_their_folders(tmp_path: Path, run_pilot: RunPilot) -> None:
    write_pilot(tmp_path / "mine")
    done = run_pilot("diagnose", "mine", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["mine/arms/baseline", "mine/arms/lr_x1_3"]
    assert "48 points, loss" in lines[1]
