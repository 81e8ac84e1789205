"""A log from a pipe: readers go back to its start, so it is kept in a file while it is read."""

from __future__ import annotations

import contextlib
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pilot.errors import LogError

_DASH = "-"
# An open descriptor of this process, as a shell writes ``<(command)``.
_OPEN = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")


def is_stream(path: str) -> bool:
    """Whether a path is stdin, or a pipe that a shell has opened for this process."""
    if path == _DASH:
        return True
    if not path.startswith(_OPEN):
        return False
    try:
        return not stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:
        return False


@contextlib.contextmanager
def as_file(path: str) -> Iterator[Path]:
    """A temporary file with all that the stream holds; gone afterwards.

    Raises:
        LogError: stdin is closed or a terminal.
        OSError: it cannot be read, or the temporary folder is full.
    """
    with _opened(path) as stream, tempfile.TemporaryDirectory(prefix="pilot-") as folder:
        if stream.isatty():
            remedy = "pipe a log into it, or give the path of a file"
            raise LogError(path, "is a terminal, not a log", remedy=remedy)
        file = Path(folder) / "stdin"
        with file.open("wb") as copy:
            shutil.copyfileobj(stream, copy, 1 << 20)
        yield file


@contextlib.contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path != _DASH:
        with open(path, "rb") as stream:
            yield stream
    elif sys.stdin is None:
        raise LogError(path, "stdin is closed", remedy="give the path of a file")
    else:
        yield sys.stdin.buffer
