from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from pilot.readers import source

TEXT = "step 1 loss 2.5\nstep 2 loss 2.4\n"


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.replace("\n", "\r\n").encode(),
        b"\xff\xfe" + TEXT.replace("\n", "\r\n").encode("utf-16-le"),
        b"\xfe\xff" + TEXT.encode("utf-16-be"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        gzip.compress(TEXT.encode(), mtime=0),
        b"\x1b[32mstep 1\x1b[0m loss 2.5\n\x1b]8;;http://x\x07step 2\x1b[K loss 2.4\n",
        b"step 1 loss 2.5\rstep 2 loss 2.4\r",
        b"step 1 loss 2.5" + b"\b" * 15 + b"step 2 loss 2.4\n",
    ],
)
def test_every_encoding_gives_the_same_lines(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path / "log", data)
    assert list(source.lines(path)) == ["step 1 loss 2.5", "step 2 loss 2.4"]
    assert source.head(path).rstrip("\n") == TEXT.rstrip("\n")


def test_bytes_that_cannot_be_decoded_are_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "log", b"a \xff\xfa b\nlast")
    assert list(source.lines(path)) == ["a \ufffd\ufffd b", "last"]


@pytest.mark.parametrize("end", [b"\r\n", b"\n", b"\r"])
def test_pieces_end_anywhere(tmp_path: Path, end: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"\x1b[1mé{i} text\x1b[0m".encode() for i in range(40)]
    path = write(tmp_path / "log", end.join(texts))
    for size in range(7, 40):
        monkeypatch.setattr(source, "CHUNK_BYTES", size)
        assert list(source.lines(path)) == [f"é{i} text" for i in range(40)]


def test_a_line_without_end_is_cut_and_memory_stays_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        for _ in range(24):
            file.write(b"x" * (1 << 20))
        file.write(b"\nnext\n")
    tracemalloc.start()
    found = [(len(text), text[:4]) for text in source.lines(path)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [(source.MAX_LINE_CHARS, "xxxx"), (4, "next")]
    assert peak < 12 << 20


def test_a_truncated_gzip_file_gives_what_is_there(tmp_path: Path) -> None:
    whole = gzip.compress("".join(f"line {i}\n" for i in range(50_000)).encode())
    path = write(tmp_path / "log.gz", whole[: len(whole) // 2])
    found = list(source.lines(path))
    assert found[:2] == ["line 0", "line 1"] and 10_000 < len(found) < 40_000


def test_windows_reach_the_end(tmp_path: Path) -> None:
    path = write(tmp_path / "log", b"program\n" * 100_000 + b"step 7 loss 1.0\n")
    texts = list(source.windows(path))
    assert len(texts) == 16
    assert texts[-1].endswith("step 7 loss 1.0\n")


def test_binary_is_told_from_text() -> None:
    assert source.is_binary(bytes(range(256)) * 4)
    assert not source.is_binary("Verlust 2,5 – größer".encode())
    assert not source.is_binary(b"loss: 2.5" + b"\b" * 200)
    assert not source.is_binary(TEXT.encode("utf-16"))
