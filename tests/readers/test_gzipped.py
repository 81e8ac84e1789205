"""gzip files that are cut, damaged or joined: what is there is read, and what is not is said."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from pilot.errors import LogError
from pilot.readers.registry import read

RNG = random.Random(0)
ROWS = [json.dumps({"step": i, "loss": 2 + RNG.random()}) + "\n" for i in range(3000)]
PACKED = gzip.compress("".join(ROWS).encode(), mtime=0)


def points(path: Path) -> tuple[int, str]:
    (trace,) = read(path)
    return len(trace.train["loss"].steps), " ".join(trace.notes)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_cut_file(tmp_path: Path) -> None:
    num, notes = points(write(tmp_path / "a.jsonl.gz", PACKED[: len(PACKED) // 2]))
    assert 1300 < num < 1700
    assert "the gzip stream is cut off; what could be unpacked is read" in notes


def test_a_damaged_file_is_read_to_its_damage(tmp_path: Path) -> None:
    place = len(PACKED) // 2
    data = PACKED[:place] + b"\xff" * 40 + PACKED[place + 40 :]
    num, notes = points(write(tmp_path / "a.jsonl.gz", data))
    assert 1300 < num < 3000
    assert "the gzip stream is damaged" in notes


def test_a_wrong_checksum_costs_no_value(tmp_path: Path) -> None:
    data = PACKED[:-8] + b"\0\0\0\0" + PACKED[-4:]
    num, notes = points(write(tmp_path / "a.jsonl.gz", data))
    assert num == 3000 and "is damaged" in notes


@pytest.mark.parametrize(("end", "note"), [(b"", ""), (b"\0" * 9, ""), (b"junk", "followed by")])
def test_members_one_after_another(tmp_path: Path, end: bytes, note: str) -> None:
    joined = b"".join(gzip.compress("".join(ROWS[i : i + 1000]).encode()) for i in (0, 1000, 2000))
    num, notes = points(write(tmp_path / "a.jsonl.gz", joined + end))
    assert num == 3000
    assert note in notes and bool(note) == bool(notes)


def test_nothing_that_can_be_unpacked_is_not_called_empty(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl.gz", PACKED[:12])
    with pytest.raises(LogError, match="nothing can be read: the gzip stream is cut off"):
        read(path)


def test_a_line_that_is_cut_is_told(tmp_path: Path) -> None:
    text = "{'loss': 1.25, 'grad_norm': 0.5, 'epoch': 0.1} " * 30_000
    (trace,) = read(write(tmp_path / "a.txt", text.encode()))
    assert len(trace.train["loss"].steps) == 22_310  # of 47 characters in 1 MiB
    assert "a line longer than 1 MiB is cut: the rest of it is not read" in trace.notes
