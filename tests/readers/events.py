"""Writes TensorBoard event files byte by byte, for the tests of the reader."""

from __future__ import annotations

import struct
from pathlib import Path


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(step: int, *values: bytes) -> bytes:
    body = varint(1 << 3 | 1) + struct.pack("<d", 1.7e9) + varint(2 << 3) + varint(step)
    return body + field(5, b"".join(field(1, value) for value in values))


def scalar(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value)


def tensor(tag: str, value: float, *, packed: bool) -> bytes:
    """A float tensor, its number as raw content or as a packed list."""
    data = struct.pack("<f", value)
    shape = field(2, b"")
    return field(1, tag.encode()) + field(
        8, varint(1 << 3) + varint(1) + shape + field(5 if packed else 4, data)
    )


def record(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + b"\0" * 4 + data + b"\0" * 4


def write(path: Path, *events: bytes) -> Path:
    version = varint(1 << 3 | 1) + struct.pack("<d", 1.7e9) + field(3, b"brain.Event:2")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(record(data) for data in (version, *events)))
    return path
