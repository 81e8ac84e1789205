"""The digest of a row's content: the same for the same content, in every process."""

from __future__ import annotations

import dataclasses
import datetime
import subprocess
import sys
from collections import OrderedDict, UserDict
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
import torch

from pilot.data.canonical import content_digest


def digest(value: object) -> bytes:
    unknown: set[str] = set()
    found = content_digest(value, unknown)
    assert unknown == set()
    return found


@dataclasses.dataclass
class Pair:
    a: int
    b: list[int]


class Plain:
    def __init__(self, x: object) -> None:
        self.x = x


class Image:
    mode, size = "L", (2, 1)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def tobytes(self) -> bytes:
        return self.data


class Silent:
    __slots__ = ()


SAME: list[tuple[str, Any, Any]] = [
    ("order of keys", {"a": 1, "b": [2]}, OrderedDict(b=[2], a=1)),
    ("user mapping", {"a": 1}, UserDict(a=1)),
    ("tuple and list", [1, "x"], (1, "x")),
    ("numpy scalar", 5, np.int64(5)),
    ("numpy bool", True, np.bool_(True)),
    ("nan", float("nan"), -float("nan")),
    ("set", {"a", "b", "c"}, frozenset(["c", "b", "a"])),
    ("strides", np.arange(6).reshape(2, 3).T.copy(), np.arange(6).reshape(2, 3).T),
    ("grad", torch.ones(2, requires_grad=True), torch.ones(2)),
]
OTHER: list[tuple[str, Any, Any]] = [
    ("order of rows", [1, 2], [2, 1]),
    ("int and text", 1, "1"),
    ("int and float", 1, 1.0),
    ("none and empty", None, ""),
    ("cut", ["ab", "c"], ["a", "bc"]),
    ("nesting", [[1, 2], [3]], [[1], [2, 3]]),
    ("shape", np.zeros((2, 3)), np.zeros((3, 2))),
    ("dtype", torch.ones(2), torch.ones(2, dtype=torch.bfloat16)),
    ("bf16", torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([2.0], dtype=torch.bfloat16)),
    ("key", {"a": 1}, {"b": 1}),
    ("absent key", {"a": None}, {}),
    ("dataclass", Pair(1, [2]), Pair(1, [3])),
    ("attribute", Plain([1]), Plain([2])),
    ("image", Image(b"ab"), Image(b"ba")),
    ("date", datetime.date(2024, 1, 2), datetime.date(2024, 1, 3)),
    ("decimal", Decimal("1.0"), Decimal("1.00")),
    ("path", PurePosixPath("a/b"), PurePosixPath("a/c")),
    ("huge int", 10**40, 10**40 + 1),
    ("half a surrogate", "\ud83d", "\ud83e"),
    ("object array", np.array([1, "a"], dtype=object), np.array([1, "b"], dtype=object)),
    ("last of a long list", [0] * 999 + [1], [0] * 999 + [2]),
    ("scalar tensor", torch.tensor(1), torch.tensor(2)),
    ("empty", torch.zeros(0, 3), torch.zeros(3, 0)),
]


@pytest.mark.parametrize(("one", "other"), [c[1:] for c in SAME], ids=[c[0] for c in SAME])
def test_equal_content_is_one_digest(one: Any, other: Any) -> None:
    assert digest(one) == digest(other)


@pytest.mark.parametrize(("one", "other"), [c[1:] for c in OTHER], ids=[c[0] for c in OTHER])
def test_other_content_is_another_digest(one: Any, other: Any) -> None:
    assert digest(one) == digest(one)
    assert digest(one) != digest(other)


@pytest.mark.parametrize(
    "value",
    [Silent(), lambda: 1, Silent, iter([1]), Plain(Silent())],
    ids=["object", "function", "class", "iterator", "inside an object"],
)
def test_what_has_no_content_is_said(value: object) -> None:
    unknown: set[str] = set()
    content_digest({"x": value}, unknown)
    assert len(unknown) == 1 and next(iter(unknown)).endswith("by its type only")


def test_a_cycle_ends() -> None:
    cycle: list[Any] = [1]
    cycle.append(cycle)
    unknown: set[str] = set()
    assert content_digest(cycle, unknown) and unknown


def test_another_process_gives_the_same(tmp_path: Path) -> None:
    """Hash randomisation moves sets and dictionaries of text."""
    code = (
        "import sys; from pilot.data.canonical import content_digest as d; import numpy as np;"
        "row = {'a': {'x', 'y', 'zz'}, 'b': [1.5, None], 'c': np.arange(3), 'd': {1: 'e'}};"
        "print(d(row, set()).hex())"
    )
    root = str(Path(__file__).resolve().parents[2])
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": root},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
