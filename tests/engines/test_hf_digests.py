"""Digests of a Trainer's sets: stable, sensitive, honest about what changes by itself."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from pilot.engines.hf.digests import UNSTABLE, changed_sets, digests, sampled_rows
from tests.engines.trainers import HELD, TRAIN, make_rows, make_trainer


def changed(tmp_path: Path, train: Any, evaluate: Any = None, before: Any = None) -> list[str]:
    """What a Trainer over other rows reports against one over ``before``."""
    surveyed = digests(make_trainer(tmp_path, train=before or TRAIN))
    return changed_sets(make_trainer(tmp_path, train=train, evaluate=evaluate), surveyed)


def test_every_set_has_one(tmp_path: Path) -> None:
    found = digests(make_trainer(tmp_path, evaluate={"a": HELD[:4], "b": HELD[4:], "c": []}))
    assert [(f["name"], f["rows"]) for f in found] == [
        ("train_dataset", 32),
        ("eval_dataset.a", 4),
        ("eval_dataset.b", 8),
    ]
    assert len({f["sha256"] for f in found}) == 3 and not any(f["note"] for f in found)


def test_the_same_rows_are_the_same_set(tmp_path: Path) -> None:
    turned = [dict(reversed(list(row.items()))) for row in copy.deepcopy(TRAIN)]
    assert changed(tmp_path, turned) == []
    assert changed(tmp_path, datasets.Dataset.from_list(TRAIN)) == []


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (lambda rows: rows[:-1], "train_dataset: 32 rows -> 31"),
        (lambda rows: [rows[1], rows[0], *rows[2:]], "train_dataset: 32 rows with other content"),
        (
            lambda rows: [*rows[:-1], {**rows[-1], "source": "x"}],
            "train_dataset: 32 rows with other content",
        ),
    ],
    ids=["fewer", "order", "one column of the last row"],
)
def test_other_rows_are_named(tmp_path: Path, edit: Any, line: str) -> None:
    assert changed(tmp_path, edit(list(TRAIN))) == [line]


def test_another_validation_set_is_named(tmp_path: Path) -> None:
    assert changed(tmp_path, TRAIN, {"x": HELD}) == [
        "eval_dataset: is gone",
        "eval_dataset.x: was not there",
    ]


def test_a_large_set_is_sampled_with_its_ends(tmp_path: Path) -> None:
    rows = sampled_rows(200_000, 2_000, 1_000)
    assert rows[0] == 0 and rows[-1] == 199_999 and len(rows) == 1_000
    assert np.ptp(np.diff(rows)) <= 1
    many = make_rows(2_500)
    assert digests(make_trainer(tmp_path, train=many))[0]["sampled"]
    other = [*many[:-1], {**many[-1], "input_ids": [7, 8, 9], "labels": [7, 8, 9]}]
    assert changed(tmp_path, other, before=many) == ["train_dataset: 2500 rows with other content"]


class Noisy(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Augments at random, by the global state of ``draw``."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def __len__(self) -> int:
        return len(TRAIN)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {**TRAIN[row], "noise": self._draw()}


DRAWS = {
    "random": random.random,
    "numpy": np.random.rand,
    "torch": lambda: torch.rand(1),
    "own generator": np.random.default_rng(0).random,
}


@pytest.mark.parametrize("name", DRAWS)
def test_rows_that_change_have_no_digest(tmp_path: Path, name: str) -> None:
    trainer = make_trainer(tmp_path, train=Noisy(DRAWS[name]))
    state = (random.getstate(), torch.get_rng_state())
    found = digests(trainer)[0]
    assert found["sha256"] is None and found["note"] == UNSTABLE and found["rows"] == 32
    assert random.getstate() == state[0] and torch.equal(torch.get_rng_state(), state[1])
    assert changed_sets(trainer, digests(trainer)) == []


def test_a_set_without_row_numbers_is_said(tmp_path: Path) -> None:
    class Stream(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            raise AssertionError("a stream must not be read")

    found = digests(make_trainer(tmp_path, train=Stream()))[0]
    assert found["rows"] is None and found["sha256"] is None
    assert "no rows that can be read by their number" in found["note"]


def test_a_row_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    class Broken(Noisy):
        def __getitem__(self, row: int) -> dict[str, Any]:
            if row == 9:
                raise KeyError("gone")
            return TRAIN[row]

    found = digests(make_trainer(tmp_path, train=Broken(None)))[0]
    assert found["sha256"] is None and "KeyError" in found["note"]
