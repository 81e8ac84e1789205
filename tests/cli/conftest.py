"""An undisturbed pilot that several files compare with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.userdir import make_user_dir
from tests.conftest import environment


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed pilot of the tiny recipe."""
    root = make_user_dir(tmp_path_factory.mktemp("finished"))
    done = subprocess.run(
        [sys.executable, "-m", "pilot", "+recipe=tiny"],
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "GO" in done.stdout
    return root / "out"
