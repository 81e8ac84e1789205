"""The file that a picture goes to: checked before the work, replaced as a whole at the end."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_PNG = b"\x89PNG"


def complaint(plot: Path) -> str:
    """Why a picture cannot be written there; "" if it can.

    Only a picture is ever replaced: never a log, a pipe or a device.
    """
    if plot.suffix.lower() != ".png":
        return f"{plot}: the plot is a PNG file; give --plot a name that ends in .png"
    try:
        if plot.is_dir():
            return f"{plot}: is a folder; --plot needs the name of a file"
        why = _why_kept(plot)
        if why:
            return f"{plot}: {why}; no plot is drawn"
        _try(plot.resolve())
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        why = getattr(error, "strerror", None) or str(error)
        return f"{plot}: cannot be written ({why}); no plot is drawn"
    return ""


def _why_kept(plot: Path) -> str:
    """Why what is there must stay; "" where there is nothing, or a picture."""
    if not plot.exists():
        return ""
    if not plot.is_file():
        return "is a pipe or device, not a file"
    with plot.open("rb") as file:
        first = file.read(len(_PNG))
    return "" if first in (b"", _PNG) else "exists and is no picture: give another name"


def _try(plot: Path) -> None:
    """Raise what writing would."""
    if plot.exists():
        with plot.open("ab"):
            pass
    with tempfile.TemporaryFile(dir=plot.parent):
        pass


@contextlib.contextmanager
def replaced(plot: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of ``plot`` once it is whole; after an error all is as it was.

    Raises:
        OSError: it cannot be written (a full disk), or is not to be replaced.
    """
    why = complaint(plot)
    if why:
        raise OSError(why.removeprefix(f"{plot}: "))
    place = plot.resolve()
    temporary = place.with_name(f".{os.getpid()}.png.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
        if place.exists():
            temporary.chmod(place.stat().st_mode & 0o777)
        os.replace(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)
