"""TensorBoard event files, read without TensorBoard: records of length-prefixed protocol buffers.

File: per record uint64 length, uint32 checksum, the bytes, uint32 checksum (all little-endian).
Bytes: an ``Event`` (wall_time = 1, step = 2, summary = 5); a ``Summary`` repeats value = 1; a
``Value`` has tag = 1 and simple_value = 2 (float) or tensor = 8; a ``TensorProto`` has dtype = 1,
tensor_content = 4, float_val = 5, double_val = 6. Checksums are not verified: a torn record shows
in its length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from pilot.readers.base import Reader
from pilot.readers.fields import column
from pilot.readers.points import Points
from pilot.series.types import Trace

NAME = "tensorboard"
_FLOAT, _DOUBLE = 1, 2
_MAX_RECORD = 256 << 20
# Longer records hold pictures, histograms or graphs; a scalar takes some dozen bytes.
_MAX_SCALARS = 1 << 20


def is_event_file(path: Path) -> bool:
    """The name, or a first record of plausible length that states the file version."""
    if "tfevents" in path.name:
        return True
    with path.open("rb") as file:
        data = file.read(64)
    return len(data) > 12 and data[0] < 64 and b"brain.Event:" in data


def sniff(head: str, path: Path) -> float:
    """Sure by the file's name or first record."""
    return 0.99 if is_event_file(path) else 0.0


def read(path: Path) -> Iterator[Trace]:
    """All scalars of one event file."""
    return read_files([path], path)


def read_files(paths: Iterable[Path], source: Path) -> Iterator[Trace]:
    """The event files of one folder, oldest first: a restart writes a new file."""
    points = Points(source, NAME)
    for path in paths:
        with path.open("rb") as file:
            _fill(points, file)
    yield from points.traces()


def _fill(points: Points, file: IO[bytes]) -> None:
    """Values of one step that stand together become one row."""
    for data in _records(file, points):
        step, summaries = 0, []
        for number, value in _message(data):
            if number == 2 and isinstance(value, int):
                step = value - (1 << 64) if value >> 63 else value
            elif number == 5 and isinstance(value, bytes):
                summaries.append(value)
        for tag, scalar in _scalars(summaries):
            points.keys.add(tag)
            place = column(tag)
            if place is not None:
                points.entry(step, place, scalar)


def _records(file: IO[bytes], points: Points) -> Iterator[bytes]:
    while len(head := file.read(12)) == 12:
        (length,) = struct.unpack("<Q", head[:8])
        data = file.read(length + 4) if length <= _MAX_RECORD else b""
        if len(data) < length + 4:
            points.note("the last record of an event file is cut off: left out")
            return
        if length <= _MAX_SCALARS:
            yield data[:-4]


def _scalars(summaries: Iterable[bytes]) -> Iterator[tuple[str, float]]:
    for summary in summaries:
        for number, value in _message(summary):
            if number != 1 or not isinstance(value, bytes):
                continue
            fields = dict(_message(value))
            tag, simple, tensor = fields.get(1), fields.get(2), fields.get(8)
            scalar = simple if isinstance(simple, float) else _tensor(tensor)
            if isinstance(tag, bytes) and scalar is not None:
                yield tag.decode("utf-8", "replace"), scalar


def _tensor(data: object) -> float | None:
    """The first number of a float or double tensor."""
    fields = dict(_message(data)) if isinstance(data, bytes) else {}
    kind, content = fields.get(1), fields.get(4)
    form, size = ("<f", 4) if kind == _FLOAT else ("<d", 8)
    value = content or fields.get(5 if kind == _FLOAT else 6)
    if isinstance(value, float):
        return value
    if kind not in (_FLOAT, _DOUBLE) or not isinstance(value, bytes) or len(value) < size:
        return None
    return float(struct.unpack(form, value[:size])[0])


def _message(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """The fields of a protocol buffer: number, and the value as its wire type tells."""
    place, end = 0, len(data)
    while place < end:
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(data, place)
            yield number, value
        elif wire in (1, 5) and place + (size := 8 if wire == 1 else 4) <= end:
            yield number, struct.unpack_from("<d" if wire == 1 else "<f", data, place)[0]
            place += size
        elif wire == 2:
            length, place = _varint(data, place)
            yield number, data[place : place + length]
            place += length
        else:
            return


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data):
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            break
    return value, place


READERS = (
    Reader(
        name=NAME,
        wants="a TensorBoard event file (events.out.tfevents...)",
        sniff=sniff,
        read=read,
    ),
)
