"""Advisory locks on files: released by the kernel when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pilot.errors import FolderError


@contextmanager
def hold(path: Path, what: str, *, wait_secs: float = 0.0) -> Iterator[None]:
    """Hold the lock ``path`` for a while.

    Raises:
        FolderError: somebody else holds it for longer than ``wait_secs``; names their process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_secs
    with path.open("a+", encoding="ascii") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= deadline:
                    file.seek(0)
                    holder = file.read().strip() or "unknown"
                    raise FolderError(
                        path.parent,
                        f"in use: {what} (process {holder})",
                        remedy="wait for it to end, or choose another out_dir",
                    ) from None
                time.sleep(0.1)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
