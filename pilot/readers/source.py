"""A file as a stream of text lines, whatever wrote it, in bounded memory."""

from __future__ import annotations

import codecs
import contextlib
import io
import re
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from pilot.readers import gzipped

HEAD_BYTES = 256 * 1024
CHUNK_BYTES = 1 << 20
# No trainer prints a record this long; a text without newlines must not fill the memory.
MAX_LINE_CHARS = 1 << 20
_TAIL_CHARS = 1 << 16
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: it begins with the same two bytes
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[()][A-Z0-9]|[@-Z\\^_=>78c])"
)

_CUT = f"a line longer than {MAX_LINE_CHARS >> 20} MiB is cut: the rest of it is not read"

_BACKSPACES = re.compile(r"\x08+")  # how Keras goes back to the start of its progress bar


@dataclass
class Seen:
    """What was noticed of a file beside its lines.

    ``notes``: what could not be read of it. ``tail``: its last 64 KiB of text or somewhat more.
    """

    notes: dict[str, None] = field(default_factory=dict)
    tail: str = ""


_SEEN: ContextVar[Seen | None] = ContextVar("seen", default=None)


@contextlib.contextmanager
def watched() -> Iterator[Seen]:
    """What readers within the block come upon that they themselves do not look at."""
    seen = Seen()
    token = _SEEN.set(seen)
    try:
        yield seen
    finally:
        _SEEN.reset(token)


def _notice(note: str) -> None:
    seen = _SEEN.get()
    if seen is not None and note:
        seen.notes[note] = None


def lines(path: Path) -> Iterator[str]:
    """The lines of a text file, without line ends.

    The encoding follows the BOM, or the NULs of UTF-16 without one; bytes that cannot be decoded
    become U+FFFD. ANSI codes are removed; the carriage returns of a progress bar end a line; a
    line longer than ``MAX_LINE_CHARS`` is cut there. gzip is undone, as far as it goes.
    Memory: one chunk and one line.

    Raises:
        OSError: the file cannot be read.
    """
    rest, dropping = "", False
    for text in chunks(path):
        parts = (rest + text if rest else text).split("\n")
        rest = parts.pop()
        if parts and dropping:
            parts[0], dropping = parts[0][:MAX_LINE_CHARS], False
        yield from parts
        if len(rest) > MAX_LINE_CHARS:
            rest, dropping = rest[:MAX_LINE_CHARS], True
            _notice(_CUT)
    if rest:
        yield rest


def chunks(path: Path) -> Iterator[str]:
    r"""The decoded text of a file in pieces of about 1 MiB: lines end in ``\n``, no ANSI codes."""
    seen, last = _SEEN.get(), ""
    for text in _pieces(path):
        if seen is not None:
            seen.tail = f"{last[-_TAIL_CHARS:]}{text}" if len(text) < _TAIL_CHARS else text
            last = seen.tail
        yield text


def _pieces(path: Path) -> Iterator[str]:
    with open_bytes(path) as file:
        first = _take(file, CHUNK_BYTES)
        name, skip = encoding(first)
        decoder = codecs.getincrementaldecoder(name)("replace")
        data, held = first[skip:], ""
        while data:
            text = held + decoder.decode(data)
            data = _take(file, CHUNK_BYTES)
            # A piece must not end inside "\r\n" or an ANSI code.
            cut = len(text) if not data else _safe_end(text)
            held = text[cut:]
            yield clean(text[:cut])
        tail = held + decoder.decode(b"", True)
        if tail:
            yield clean(tail)


def _safe_end(text: str) -> int:
    escape = text.rfind("\x1b", max(0, len(text) - 256))
    if escape >= 0 and "\n" not in text[escape:]:
        return escape
    return len(text) - 1 if text.endswith("\r") else len(text)


def clean(text: str) -> str:
    r"""The text without ANSI codes; ``\r\n``, ``\r`` and runs of backspaces become ``\n``."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\b" in text:
        text = _BACKSPACES.sub("\n", text)
    return text.replace("\x00", "") if "\x00" in text else text


def open_bytes(path: Path) -> IO[bytes]:
    """The bytes of a file, a gzip file's unpacked as far as it goes."""
    file = path.open("rb")
    is_gzip = file.read(2) == gzipped.MAGIC
    file.seek(0)
    if not is_gzip:
        return file
    file.close()
    return cast(IO[bytes], io.BufferedReader(gzipped.Unpacked(path), 1 << 18))


def _take(file: IO[bytes], size: int) -> bytes:
    """Up to ``size`` bytes; a damaged gzip file's end is noticed."""
    data = file.read(size)
    raw = getattr(file, "raw", None)
    if isinstance(raw, gzipped.Unpacked) and raw.note:
        _notice(raw.note)
    return data


def encoding(data: bytes) -> tuple[str, int]:
    """The name of the encoding and the length of the BOM, from the first bytes of a file."""
    for bom, name in _BOMS:
        if data.startswith(bom):
            return name, len(bom)
    sample = data[:4096]
    # Western text in UTF-16 has a NUL in nearly every second byte; UTF-8 has none.
    half = max(1, len(sample) // 2)
    if sample[1::2].count(0) > 0.6 * half > 4 * sample[0::2].count(0):
        return "utf-16-le", 0
    if sample[0::2].count(0) > 0.6 * half > 4 * sample[1::2].count(0):
        return "utf-16-be", 0
    return "utf-8", 0


def head(path: Path, num_bytes: int = HEAD_BYTES) -> str:
    """The first ``num_bytes`` of a file as clean text (see ``lines``).

    Raises:
        OSError: the file cannot be read.
    """
    with open_bytes(path) as file:
        return decode(_take(file, num_bytes))


def start(path: Path, num_bytes: int = 4096) -> bytes:
    """The first bytes of a file, a gzip file's unpacked."""
    with open_bytes(path) as file:
        return _take(file, num_bytes)


def decode(data: bytes, name: str | None = None) -> str:
    """Bytes from the start of a file (or, with a known encoding, from anywhere) as clean text."""
    skip = 0
    if name is None:
        name, skip = encoding(data)
    return clean(data[skip:].decode(name, "replace"))


def windows(path: Path, *, count: int = 16, num_bytes: int = HEAD_BYTES) -> Iterator[str]:
    """Text from further places of a file, evenly spread and its end last, to find a late log.

    A gzip file cannot be entered in the middle: it has none.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(4096)
        if first.startswith(gzipped.MAGIC) or size <= num_bytes:
            return
        name, _ = encoding(first)
        places = range(1, count + 1)
        offsets = sorted({num_bytes + (size - 2 * num_bytes) * k // count for k in places})
        for offset in offsets:
            file.seek(max(0, offset - offset % 4))
            yield decode(file.read(num_bytes), name)


def is_binary(data: bytes) -> bool:
    """Whether the first bytes of a file are no text: NULs (and not UTF-16) or mostly controls."""
    sample = data[:4096]
    if not sample or encoding(sample)[0] != "utf-8":
        return False
    controls = sum(byte < 8 or 13 < byte < 27 or 27 < byte < 32 for byte in sample)
    return sample.count(0) > len(sample) // 100 or controls > len(sample) // 20
