"""One judged pilot folder per test, and one real SQLite store that every test gets a copy of."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pilot.folder import PilotFolder
from pilot.view import PilotView
from tests.factories import build_view
from tests.tracking.pilots import write_judged

MakePilot = Callable[..., Path]


@pytest.fixture(scope="session")
def empty_store() -> Iterator[Path]:
    """Creating the tables takes seconds: once, and in memory where the system has such a folder."""
    from pilot.tracking import store

    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="pilot-tests-", dir=memory) as folder:
        path = Path(folder) / "mlflow.db"
        with store.quiet():
            store.open_store(f"sqlite:///{path}")
        yield path


@pytest.fixture
def make_pilot(tmp_path: Path) -> MakePilot:
    """Write and judge a pilot whose tracking section is given; returns its folder."""

    def make(uri: str | None, view: PilotView | None = None, **config: Any) -> Path:
        view = view or build_view()
        tree = {**view.config, "tracking": {"uri": uri, "experiment": None, "log_text": False}}
        for section, values in config.items():
            tree[section] = {**tree[section], **values}
        root = write_judged(tmp_path / "pilot", view, tree)
        PilotFolder(root).figures.mkdir()
        (PilotFolder(root).figures / "baseline.png").write_bytes(b"\x89PNG")
        return root

    return make


@pytest.fixture
def store_copy(empty_store: Path) -> Iterator[Path]:
    """A copy of the empty store, alone in a folder ``outputs``."""
    with tempfile.TemporaryDirectory(dir=empty_store.parent) as folder:
        path = Path(folder) / "outputs" / "mlflow.db"
        path.parent.mkdir()
        shutil.copy(empty_store, path)
        yield path
