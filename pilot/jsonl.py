"""Strict JSON and JSON lines on disk: append-only, flushed, torn lines cut, replaced as a whole.

A number that is not finite is written as the string ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``:
it is recorded as such, never averaged away.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pilot.errors import DiskFull, is_disk_full

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

T = TypeVar("T")


def to_json(value: object) -> str:
    """One line of strict JSON; non-finite numbers become strings, keys keep their order."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def from_json(kind: type[T], data: Mapping[str, Any]) -> T:
    """Build the frozen value ``kind`` from parsed JSON; ignores unknown keys (newer writers)."""
    values: dict[str, Any] = {}
    for item in dataclasses.fields(kind):  # type: ignore[arg-type]
        if item.name not in data:
            continue
        value = data[item.name]
        values[item.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def parse(text: str) -> Any:
    """Parse JSON; ``"NaN"``, ``"Infinity"`` and ``"-Infinity"`` become floats again."""
    return _revive(json.loads(text))


def _revive(value: object) -> object:
    if isinstance(value, str):
        return _NON_FINITE.get(value, value)
    if isinstance(value, list):
        return [_revive(item) for item in value]
    if isinstance(value, dict):
        return {key: _revive(item) for key, item in value.items()}
    return value


class JsonlWriter:
    """Appends values to a JSON-lines file, one flushed line each (readable after ``kill -9``).

    A file that ends in a torn line (the writer was killed inside a write) gets that line cut off
    first. Raises ``DiskFull`` when the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _cut_torn_line(path)
        try:
            # A half surrogate pair in a message becomes its JSON escape.
            self._file = path.open("a", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise _disk_error(path, error) from error

    def write(self, value: object) -> None:
        """Append ``value`` and flush it to the operating system."""
        try:
            self._file.write(to_json(value) + "\n")
            self._file.flush()
        except OSError as error:
            raise _disk_error(self.path, error) from error

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        try:
            self._file.close()
        except OSError as error:
            raise _disk_error(self.path, error) from error

    def __enter__(self) -> JsonlWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _disk_error(path: Path, error: OSError) -> Exception:
    return DiskFull(path, error) if is_disk_full(error) else error


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def read_jsonl(path: Path, kind: type[T]) -> Iterator[T]:
    """The values of a file in order; a torn last line and a missing file yield nothing."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for line in lines[:-1]:  # what follows the last newline is torn
        if line:
            yield from_json(kind, parse(line))


def write_json(path: Path, value: object) -> None:
    """Write indented JSON atomically (temporary file, then rename). Raises ``DiskFull``."""
    # ASCII only: control and direction characters of a message must not reach a terminal raw.
    text = json.dumps(_plain(value), ensure_ascii=True, allow_nan=False, indent=2) + "\n"
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Write text atomically (temporary file, then rename). Raises ``DiskFull``."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise _disk_error(path, error) from error
