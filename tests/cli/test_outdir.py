"""Claiming the output folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilot.cli.outdir import claim
from pilot.errors import FolderError


def test_a_new_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    claim(root)
    assert list(root.iterdir()) == []


def test_a_folder_with_other_files_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    claim(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_pilot_is_not_overwritten(tmp_path: Path) -> None:
    for name in ("config.yaml", "start.json"):
        (tmp_path / name).write_text("x")
    with pytest.raises(FolderError, match="holds a pilot already.*\n.*resume"):
        claim(tmp_path)


@pytest.mark.parametrize("name", ["plan.json", "config.yaml", "survey.json", "report.md", "arms"])
def test_files_of_something_else_are_not_overwritten(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("x")
    (tmp_path / "pilot.lock").write_text("")  # of a pilot that was killed before it began
    with pytest.raises(
        FolderError, match=f"holds other files by the names of a pilot.s: {name}\n.*another"
    ):
        claim(tmp_path)


def test_what_was_made_is_removed_when_it_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for root in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/pilot/x")):
        with pytest.raises(FolderError, match="cannot be written"):
            claim(root)
    long_name = tmp_path / "made" / ("x" * 300)
    with pytest.raises(FolderError, match="File name too long"):
        claim(long_name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
