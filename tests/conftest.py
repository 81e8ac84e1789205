"""What all tests share: a quiet, single-threaded environment, and a way to run the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Before torch is imported anywhere; sub-processes inherit it.
for _key, _value in {
    "OMP_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}.items():
    os.environ.setdefault(_key, _value)

RunPilot = Callable[..., "subprocess.CompletedProcess[str]"]


def environment() -> dict[str, str]:
    """The environment of a sub-process that runs this checkout."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "120", "NO_COLOR": "1"}


@pytest.fixture
def run_pilot(tmp_path: Path) -> RunPilot:
    """Run ``python -m pilot`` for real, from an empty directory."""

    def run(
        *words: str, cwd: Path | None = None, timeout: float = 300.0
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pilot", *words],
            cwd=cwd or tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run
