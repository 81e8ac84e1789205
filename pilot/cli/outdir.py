"""Claims the pilot's folder before anything runs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pilot.errors import FolderError
from pilot.folder import PilotFolder


def claim(root: Path) -> None:
    """Create ``root`` and try to write into it.

    It is really tried: permission bits say nothing to root, and nothing about a read-only disk.

    Raises:
        FolderError: it holds a pilot already, or files of something else by the names of a pilot's,
            cannot be created, or cannot be written.
    """
    folder = PilotFolder(root)
    if os.path.exists(folder.start):
        raise FolderError(
            root,
            "holds a pilot already",
            remedy=f"go on with it: python -m pilot resume {root} - or choose another out_dir=DIR",
        )
    if foreign := folder.taken_names():
        raise FolderError(
            root,
            f"holds other files by the names of a pilot's: {', '.join(foreign)}",
            remedy="choose another out_dir=DIR",
        )
    made = _missing_parents(root)
    probe = root / f".pilot-probe-{os.getpid()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"pilot")
        probe.unlink()
    except OSError as error:
        _remove_empty(made)
        raise FolderError(
            root,
            f"cannot be written: {error.strerror or error}",
            remedy="choose another out_dir=DIR",
        ) from error


def _missing_parents(root: Path) -> list[Path]:
    return [
        path for path in (root, *root.parents) if not os.path.exists(path)
    ]  # Path.exists may raise


def _remove_empty(paths: list[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # never made, or no longer empty
            path.rmdir()
