"""Whether a file of weights is whole, by its header alone; without torch."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".tar", ".th")
_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors format
_LFS = b"version https://git-lfs"


def damage_of(path: Path) -> str:
    """What is wrong with a safetensors or torch file; empty when it looks whole."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if not size:
        return "is empty"
    if head.startswith(_LFS):
        return "is a Git LFS pointer, not the file itself: git lfs pull"
    return _safetensors(path, size) if path.suffix == ".safetensors" else _torch(path, head)


def missing_shards(index: Path) -> tuple[list[str], list[str]]:
    """The files that an index names, and those of them that are not there.

    An index that cannot be read names itself as missing.
    """
    try:
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        shards = sorted({str(name) for name in names})
    except (OSError, ValueError, KeyError, AttributeError):
        return [], [f"{index.name} (cannot be read)"]
    return shards, [name for name in shards if not (index.parent / name).is_file()]


def _safetensors(path: Path, size: int) -> str:
    with path.open("rb") as file:
        num = int.from_bytes(file.read(8), "little")
        if size < 8 or num > min(size, _MAX_HEADER_BYTES):
            return "has no safetensors header"
        try:
            header = json.loads(file.read(num))
            ends = [int(t["data_offsets"][1]) for n, t in header.items() if n != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return "has no readable safetensors header"
    needed = 8 + num + max(ends, default=0)
    return f"has {size:,} bytes, its header needs {needed:,}" if size != needed else ""


def _torch(path: Path, head: bytes) -> str:
    if head.startswith(b"PK"):
        return "" if zipfile.is_zipfile(path) else "is cut short: its directory is missing"
    if head.startswith(b"\x80"):
        return ""  # the format before torch 1.6; whether it is whole shows when it is read
    return "is no torch file"
