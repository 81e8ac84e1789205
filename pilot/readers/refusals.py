"""What is said of a file that is no training log: what it is, and what was looked for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pilot.errors import LogError
from pilot.readers import source
from pilot.readers.base import Reader

_PACKED = "packed by"
_KINDS = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (a PyTorch checkpoint, .npz and .docx are such)"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"GGUF", "a GGUF model"),
    (b"\x89HDF", "an HDF5 file"),
    (b"PAR1", "a Parquet file"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x7fELF", "a program"),
    (b"\x80\x02", "a Python pickle (an old PyTorch checkpoint)"),
    (b"\x80\x04", "a Python pickle (training_args.bin, optimizer.pt)"),
    (b"(\xb5/\xfd", f"{_PACKED} Zstandard"),
    (b"\xfd7zXZ", f"{_PACKED} xz"),
    (b"BZh", f"{_PACKED} bzip2"),
    (b'\x04"M\x18', f"{_PACKED} LZ4"),
    (b"7z\xbc\xaf\x27\x1c", f"{_PACKED} 7z"),
)
_REMEDY = "give the file that the trainer wrote"
_BY_NAME = f"{_REMEDY}, or --format NAME with one of these names"
PIPE = "a pipe or device"
_MAX_SHOWN, _MAX_LINES = 100, 3


def kind_of(data: bytes) -> str:
    """What a file is by its first bytes; "" for text."""
    for magic, kind in _KINDS:
        if data.startswith(magic):
            return kind
    if len(data) > 16 and data[8:9] == b"{" and int.from_bytes(data[:8], "little") < 1 << 27:
        return "a safetensors model"
    return "a binary file" if source.is_binary(data) else ""


def shown(text: str, limit: int = _MAX_SHOWN) -> str:
    """Text from a file on one line, with control and unusual characters escaped."""
    cut = text[: limit + 1]
    plain = "".join(c if c.isprintable() and c != "\\" else ascii(c)[1:-1] for c in cut)
    return plain if len(cut) <= limit else plain[: limit - 3] + "..."


def refuse_unreadable(path: Path, error: Exception) -> LogError:
    """The file cannot be opened or unpacked."""
    if isinstance(error, FileNotFoundError):
        return LogError(path, "there is no such file", remedy="check the path")
    if isinstance(error, PermissionError):
        return LogError(path, "permission denied", remedy="make the file readable for you")
    what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return LogError(path, f"cannot be read: {what}", remedy="check the file and the disk")


def refuse_empty(path: Path, damage: str = "") -> LogError:
    """Nothing in the file, only white space, or nothing that could be unpacked."""
    if damage:
        return LogError(path, f"nothing can be read: {damage}", remedy="get a whole copy of it")
    return LogError(
        path, "the file is empty", remedy="wait for the first record, or check the path"
    )


def refuse_kind(path: Path, kind: str) -> LogError:
    """A file that is no text."""
    if kind.startswith(_PACKED):
        return LogError(path, f"is {kind}, which is not undone here", remedy="unpack it first")
    if kind == PIPE:
        remedy = "write it to a file first, or pipe it into - (stdin)"
        return LogError(path, f"is {kind}, not a file", remedy=remedy)
    return LogError(path, f"is {kind}, not a training log", remedy=_REMEDY)


def refuse_summary(path: Path) -> LogError:
    """The last values of a W&B run."""
    what = "is the summary of a W&B run: its last values, not their course"
    return LogError(path, what, remedy="export the run's history, or give its output.log")


def refuse_text(path: Path, head: str, readers: Iterable[Reader], hint: str = "") -> LogError:
    """A text in which no format found a point; ``hint`` says what it is, where that is known."""
    texts = [text for text in head.split("\n") if text.strip()][:_MAX_LINES]
    found = "\n".join(f"      {shown(text.strip())}" for text in texts)
    looked = "\n".join(f"      {reader.name}: {reader.wants}" for reader in readers)
    first = f"no training log was recognised in it{': ' + hint if hint else ''}"
    what = f"{first}\n    it begins:\n{found}\n    looked for:\n{looked}"
    return LogError(path, what, remedy=_BY_NAME)


def refuse_format(path: Path, reader: Reader, head: str) -> LogError:
    """Read as a given format, the file has no point."""
    first = next((text for text in head.split("\n") if text.strip()), "")
    what = (
        f"holds no point as {reader.name} (looked for: {reader.wants}); it begins: "
        f"{shown(first.strip())}"
    )
    return LogError(path, what, remedy="leave --format out, or give another one")


def refuse_folder(
    path: Path, looked: Iterable[str], candidates: Iterable[Path], closed: Iterable[Path] = ()
) -> LogError:
    """A folder without any log that is known by its name; ``closed`` folders may not be read."""
    names = [shown(str(p.relative_to(path))) for p in candidates]
    more = f"; files that may be logs: {', '.join(names[:8])}" if names else ""
    shut = [shown(str(p.relative_to(path))) for p in closed]
    more += f"; folders that could not be opened: {', '.join(shut[:4])}" if shut else ""
    what = f"the folder has no log that is known by its name (looked for {', '.join(looked)}){more}"
    return LogError(path, what, remedy="give a file of it")
