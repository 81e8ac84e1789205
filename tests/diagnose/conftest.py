"""Small logs on disk that several files read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnose.traces import healthy_loss, write_state


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A healthy log, one that ends in NaN, and two of the same name in different folders."""
    write_state(tmp_path / "healthy.json", healthy_loss())
    write_state(tmp_path / "nan.json", healthy_loss()[:80] + [float("nan")] * 20)
    (tmp_path / "text.txt").write_text("dear diary,\nno training today\n", encoding="utf-8")
    (tmp_path / "empty.json").write_text("", encoding="utf-8")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_state(tmp_path / folder / "trainer_state.json", healthy_loss())
    return tmp_path
