"""gzip, undone as far as it goes: a file of a run that was killed is cut or damaged."""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAGIC = b"\x1f\x8b"
_PIECE, _MAX_OUT = 1 << 16, 1 << 18  # bytes read, bytes unpacked at once


class Unpacked(io.RawIOBase):
    """The bytes in a gzip file. ``damage`` says, at its end, what is wrong with the stream.

    Unlike ``gzip.open`` all that can be unpacked before the damage is given, and nothing raised.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._unpacker = zlib.decompressobj(wbits=31)
        self._out, self._packed, self._is_over = b"", b"", False
        self._num_out, self.damage = 0, ""

    def readable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Close the file too."""
        self._file.close()
        super().close()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill ``buffer`` with what comes next; 0 at the end."""
        view = memoryview(buffer)
        while not self._out and not self._is_over:
            self._out = self._more()
            self._num_out += len(self._out)
        given = self._out[: len(view)]
        view[: len(given)] = given
        self._out = self._out[len(given) :]
        return len(given)

    def _more(self) -> bytes:
        if self._unpacker.eof and not self._next_member():
            return b""
        if not self._packed:
            self._packed = self._file.read(_PIECE)
            if not self._packed:
                self._end("is cut off")
                return self._unpacker.flush()
        before = self._unpacker.copy()
        try:
            out = self._unpacker.decompress(self._packed, _MAX_OUT)
        except zlib.error:
            self._end("is damaged, so values may be wrong")
            return _as_far_as_it_goes(before, self._packed)
        self._packed = self._unpacker.unconsumed_tail or self._unpacker.unused_data
        return out

    def _next_member(self) -> bool:
        """Members may follow one another, with zeros behind; anything else is not of them."""
        rest = (self._packed + self._file.read(_PIECE)).lstrip(b"\0")
        self._packed, self._unpacker = rest, zlib.decompressobj(wbits=31)
        self._is_over = not rest
        if rest and not MAGIC.startswith(rest[:2]):
            self._end("is followed by something else")
        return not self._is_over

    def _end(self, what: str) -> None:
        self._is_over = True
        self.damage = what

    @property
    def note(self) -> str:
        """What is wrong, for people; "" where nothing is, or the end was not reached."""
        if not self.damage:
            return ""
        rest = f"what could be unpacked is read ({self._num_out} bytes)"
        return f"the gzip stream {self.damage}; {rest}"


def _as_far_as_it_goes(unpacker: zlib._Decompress, packed: bytes) -> bytes:
    """What a damaged piece holds before its damage: byte by byte."""
    parts = []
    try:
        for place in range(len(packed)):
            parts.append(unpacker.decompress(packed[place : place + 1]))
    except zlib.error:
        pass
    return b"".join(parts)
