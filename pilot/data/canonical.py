"""A digest of a row's content that is the same in every process and for every order of keys.

Plain values, containers, NumPy arrays, tensors and images are taken by their content. Any other
object is taken by its attributes where those are all of these kinds, else by its ``repr`` where
that shows no address and no unordered set, else by its type alone; the last two are said in
``unknown``, because a change inside such an object may not be seen.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import fractions
import hashlib
import math
import pathlib
import struct
import sys
import types
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

_MAX_DEPTH = 32
_MAX_REPR_CHARS = 10_000
_BY_REPR = (
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    range,
    slice,
)
_BY_TYPE = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)


def content_digest(value: object, unknown: set[str]) -> bytes:
    """SHA-256 of the content of ``value``.

    Args:
        value: anything that a dataset returns for a row.
        unknown: gets a line for every kind of object that is not taken by its content.
    """
    return _Digest(unknown).of(value)


class _Digest:
    def __init__(self, unknown: set[str], *, inside_object: bool = False) -> None:
        self.unknown, self._inside_object = unknown, inside_object
        self._hash = hashlib.sha256()
        self._open: set[int] = set()

    def of(self, value: object) -> bytes:
        self._feed(value)
        return self._hash.digest()

    def _put(self, tag: str, data: bytes) -> None:
        self._hash.update(f"{tag}{len(data)}:".encode())
        self._hash.update(data)

    def _feed(self, value: Any) -> None:
        if isinstance(value, np.generic) and value.dtype.kind in "biufU":
            value = value.item()
        for kinds, tag, to_bytes in _PLAIN:
            if isinstance(value, kinds):
                return self._put(tag, to_bytes(value))
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(np.asarray(value))
        if _is_tensor(value):
            return self._tensor(value)
        if id(value) in self._open or len(self._open) > _MAX_DEPTH:
            return self._by_type(value)
        self._open.add(id(value))
        try:
            return self._container(value)
        finally:
            self._open.discard(id(value))

    def _container(self, value: Any) -> None:
        if isinstance(value, Mapping):
            return self._items("d", dict(value))
        if isinstance(value, (list, tuple)):
            return self._list(value)
        if isinstance(value, (set, frozenset)):
            return self._put("S", b"".join(sorted(self._part(item) for item in value)))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return self._items("D" + _name(value), {n: getattr(value, n, None) for n in names})
        if _is_image(value):
            return self._put(f"P{value.mode}{value.size}", value.tobytes())
        return self._other(value)

    def _items(self, tag: str, items: Mapping[Any, Any]) -> None:
        self._put(tag, str(len(items)).encode())
        for _, key in sorted(((self._part(key), key) for key in items), key=lambda pair: pair[0]):
            self._feed(key)
            self._feed(items[key])

    def _part(self, value: object) -> bytes:
        return _Digest(self.unknown, inside_object=self._inside_object).of(value)

    def _list(self, value: Any) -> None:
        if value and type(value[0]) in (bool, int, float, list):
            try:
                array = np.asarray(value)
            except (ValueError, OverflowError):  # rows of unequal length, or huge numbers
                array = np.empty(0, dtype=object)
            if array.dtype.kind in "biuf":
                return self._array(array)
        self._put("l", str(len(value)).encode())
        for item in value:
            self._feed(item)

    def _array(self, array: Any) -> None:
        if array.dtype.hasobject:
            return self._list(array.tolist() if array.ndim else [array.item()])
        data = array.astype(array.dtype.newbyteorder("<"), copy=False)
        self._put(f"a{data.dtype.str}{array.shape}", np.ascontiguousarray(data).tobytes())

    def _tensor(self, value: Any) -> None:
        torch = sys.modules["torch"]
        try:
            flat = value.detach().cpu().contiguous().reshape(-1)
            data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        except (RuntimeError, NotImplementedError, TypeError):  # sparse, quantised, on no device
            return self._by_type(value)
        self._put(f"t{value.dtype}{tuple(value.shape)}", data)

    def _other(self, value: Any) -> None:
        attributes = dict(_attributes(value))
        if attributes and not self._inside_object and not isinstance(value, _BY_TYPE):
            inner: set[str] = set()
            found = _Digest(inner, inside_object=True).of(attributes)
            if not inner:
                return self._put("O" + _name(value), found)
        text = _stable_repr(value)
        if text is None:
            return self._by_type(value)
        self.unknown.add(f"{_name(value)} by its repr")
        self._put("R" + _name(value), text.encode("utf-8", "surrogatepass"))

    def _by_type(self, value: Any) -> None:
        self.unknown.add(f"{_name(value)} by its type only")
        self._put("Y", _name(value).encode())


def _float_bytes(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


# In the order of asking: a bool is an int as well, a date-time is a date.
_PLAIN: tuple[tuple[Any, str, Any], ...] = (
    (type(None), "N", lambda value: b""),
    (bool, "B", lambda value: b"1" if value else b"0"),
    (int, "i", lambda value: str(int(value)).encode()),
    (float, "f", _float_bytes),
    (complex, "c", lambda value: repr(complex(value)).encode()),
    (str, "s", lambda value: str(value).encode("utf-8", "surrogatepass")),
    ((bytes, bytearray, memoryview), "b", bytes),
    (pathlib.PurePath, "p", lambda value: value.as_posix().encode("utf-8", "surrogatepass")),
    (_BY_REPR, "r", lambda value: repr(value).encode()),
)


def _is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_image(value: Any) -> bool:
    return (
        isinstance(getattr(value, "mode", None), str)
        and isinstance(getattr(value, "size", None), tuple)
        and callable(getattr(value, "tobytes", None))
    )


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def _stable_repr(value: Any) -> str | None:
    own: Any = type(value).__repr__
    if own is object.__repr__ or isinstance(value, _BY_TYPE):
        return None
    try:
        text, again = repr(value), repr(value)
    except Exception:
        return None
    is_stable = text == again and "0x" not in text and "{" not in text
    return text if is_stable and len(text) <= _MAX_REPR_CHARS else None


def _name(value: object) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
