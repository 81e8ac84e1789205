"""Training rows that come one after the other: a generator function, an iterable, a dataset.

A stream has random numbers of its own (on the CPU), begun with ``pilot.data_seed``: dropout,
validations and ``pilot.seed`` do not change what it gives, and every process of a pilot begins it
from its start and gets the same rows, as far as it is deterministic. A window of the newest rows is
kept, so that a branch can go back a little.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pilot.engines import seeds

_DIGEST_BYTES = 4096  # of each leaf of a row
_LEVELS = 6  # a row may hold a whole object that refers to itself


class StreamEnded(RuntimeError):
    """The training data has no more rows."""


class Stream:
    """The rows of an iterable by their place from its start.

    Args:
        source: an iterable, or a function without arguments that returns one.
        seed: of its random numbers.
        keep_rows: how many of the newest rows can be asked for again.
    """

    def __init__(self, source: Any, *, seed: int, keep_rows: int) -> None:
        self._source, self._seed = source, seed
        self._iterator: Iterator[Any] | None = None
        self._random: Mapping[str, Any] | None = None
        self._kept: deque[Any] = deque(maxlen=keep_rows)
        self._head: list[Any] = []
        self._drawn = 0

    def rows(self, places: Sequence[int]) -> list[Any]:
        """The rows at ``places`` (from 0); those before them are drawn and dropped.

        Raises:
            StreamEnded: there are not so many.
            LookupError: a place lies further back than what is kept.
        """
        if places:
            self._draw_to(max(places) + 1)
        return [self._at(place) for place in places]

    def head(self, count: int) -> list[Any]:
        """The first ``count`` rows, fewer where the stream has ended, or raises: a run meets it."""
        if not self._head:
            try:
                self._draw_to(count)
            except (Exception, SystemExit):
                count = self._drawn
            self._head = [self._at(place) for place in range(count)]
        return self._head

    def _at(self, place: int) -> Any:
        if place < len(self._head):
            return self._head[place]
        index = place - (self._drawn - len(self._kept))
        if index < 0:
            raise LookupError(f"row {place} of the stream is gone: it cannot go back so far")
        return self._kept[index]

    def _draw_to(self, count: int) -> None:
        if self._drawn >= count:
            return
        outside = seeds.random_state(with_gpus=False)
        if self._random is None:
            self._random = seeds.cpu_state_of(self._seed)
        try:
            seeds.set_random_state(self._random)
            iterator = self._begun()
            while self._drawn < count:
                try:
                    self._kept.append(next(iterator))
                except StopIteration:
                    rule = f"the training data ended after {self._drawn} rows"
                    raise StreamEnded(rule) from None
                self._drawn += 1
        finally:
            self._random = seeds.random_state(with_gpus=False)
            seeds.set_random_state(outside)

    def _begun(self) -> Iterator[Any]:
        if self._iterator is None:
            source = self._source
            self._iterator = iter(source if hasattr(source, "__iter__") else source())
        return self._iterator


def rows_hash(rows: Sequence[Any]) -> str:
    """A 64-bit hash of the contents of rows, as 16 hexadecimal digits.

    Of arrays and texts the length and the first bytes count, of nested values the first levels, of
    an object its attributes.
    """
    digest = hashlib.blake2b(digest_size=8)
    for row in rows:
        _digest(row, digest, _LEVELS)
    return digest.hexdigest()


def _digest(value: Any, digest: Any, levels: int) -> None:
    digest.update(type(value).__name__.encode())
    plain = _bytes_of(value)
    if plain is not None:
        digest.update(plain)
        return
    if levels == 0:
        return
    for inner in _parts_of(value):
        _digest(inner, digest, levels - 1)


def _bytes_of(value: Any) -> bytes | None:
    """A value without parts as bytes; None: it has parts."""
    if isinstance(value, torch.Tensor):
        value = value.detach().reshape(-1)[:_DIGEST_BYTES].cpu().contiguous().view(torch.uint8)
        return bytes(value.numpy().tobytes())
    if isinstance(value, np.ndarray) and value.dtype != object:
        flat = np.ascontiguousarray(value.reshape(-1)[:_DIGEST_BYTES])
        return f"{value.shape}".encode() + flat.tobytes()
    if isinstance(value, (bytes, bytearray)):
        return str(len(value)).encode() + bytes(value[:_DIGEST_BYTES])
    if isinstance(value, (set, frozenset)):  # their order differs between processes
        value = sorted(map(repr, value))
    if isinstance(value, str):
        return f"{len(value)} {value[:_DIGEST_BYTES]}".encode("utf-8", "replace")
    if value is None or isinstance(value, (int, float, complex, np.generic)):
        return repr(value).encode()
    if isinstance(value, (list, tuple)) and all(type(v) in (int, float, str) for v in value):
        return repr(value[:_DIGEST_BYTES]).encode("utf-8", "replace")
    if callable(getattr(value, "tobytes", None)):  # an image
        return bytes(value.tobytes()[:_DIGEST_BYTES])
    return None


def _parts_of(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return [part for pair in value.items() for part in pair]
    if isinstance(value, (list, tuple)):
        return value
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    slotted = [(name, getattr(value, name)) for name in slots if hasattr(value, name)]
    return [*getattr(value, "__dict__", {}).items(), *slotted]
