"""What a recipe's ``build`` returns: all that is wrong with it at once, and nothing that is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pilot.config import Config
from pilot.engines.complete import CompleteRecipe
from pilot.engines.native_workload import NativeWorkload
from pilot.errors import ConfigError, Mistake
from pilot.recipe import RowFacts
from tests.recipes_for_tests import TinyRecipe
from tests.trees import config_tree


def mistakes(recipe: Any, **sections: Any) -> dict[str, Mistake]:
    """By key; empty: the recipe is as the contract says."""
    config = Config.model_validate(config_tree(**sections))
    try:
        NativeWorkload(recipe, config, Path("x.py")).require_contract()
    except ConfigError as error:
        return {mistake.key: mistake for mistake in error.mistakes}
    return {}


def changed(**members: Any) -> Any:
    """The tiny recipe with some members replaced."""
    recipe = TinyRecipe()
    for name, value in members.items():
        setattr(recipe, name, value)
    return recipe


def test_the_least_there_can_be() -> None:
    class Least:
        def __init__(self) -> None:
            self.train, self.validation = [(0.5, 1.0)] * 9, [(0.5, 1.0)] * 9

        def build_model(self) -> torch.nn.Module:
            return torch.nn.Linear(1, 1)

        def collate(self, rows: Any) -> Any:
            return {
                "x": torch.tensor([[x] for x, _ in rows]),
                "y": torch.tensor([y for _, y in rows]),
            }

        def loss(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
            return (model(batch["x"])[:, 0] - batch["y"]).square().mean()

    assert mistakes(Least()) == {}
    facts = NativeWorkload(Least(), Config.model_validate(config_tree()), Path("x.py")).facts()
    assert facts == [RowFacts(source="train", num_tokens=1, num_supervised_tokens=1)] * 9


def test_everything_that_is_missing_at_once() -> None:
    found = mistakes(object())
    assert set(found) == {
        "recipe's build_model",
        "recipe's collate",
        "recipe's losses",
        "recipe's train",
    }
    assert {m.value for m in found.values()} == {"missing"}
    assert all(m.rule and m.remedy for m in found.values())


def test_everything_that_is_of_the_wrong_kind_at_once() -> None:
    recipe = changed(
        build_model=3,
        collate=lambda: {},
        losses=lambda model: 0,
        num_supervised=7,
        facts=lambda: None,
        train="my.jsonl",
        validation={"a": [], "b": {"x": 1}, "c": 5},
    )
    found = mistakes(recipe, full_run={"schedule_steps": None, "epochs": 1.0})
    assert set(found) == {
        "recipe's build_model",
        "recipe's losses",
        "recipe's num_supervised",
        "recipe's facts",
        "recipe's train",
        "recipe's validation['a']",
        "recipe's validation['b']",
        "recipe's validation['c']",
    }
    assert found["recipe's losses"].rule == "is called with 2 arguments"
    assert found["recipe's validation['a']"].rule == "has no examples"


class Columns:
    """A table that is indexed by its columns, as a data frame is."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, name: Any) -> Any:
        return {"x": [1, 2, 3]}[name]


@pytest.mark.parametrize(
    ("train", "words"),
    [
        (None, "must be rows"),
        ({1: 2}, "must be rows"),
        ({1, 2}, "must be rows"),
        (b"rows", "must be rows"),
        ([], "has no examples"),
        (np.zeros((0, 3)), "has no examples"),
        (torch.utils.data.DataLoader([1, 2]), "not batches"),
        (lambda count: iter([count]), "a function that returns one"),
        (5, "a function that returns one"),
        (Columns(), "by their places 0, 1, 2, ...: [0] raises KeyError: 0"),
    ],
    ids=[
        *("none", "dict", "set", "bytes", "empty", "no_rows", "loader", "function", "number"),
        "columns",
    ],
)
def test_rows_of_the_wrong_kind(train: Any, words: str) -> None:
    found = mistakes(changed(train=train))
    assert list(found) == ["recipe's train"] and words in found["recipe's train"].rule


@pytest.mark.parametrize(
    "train",
    [tuple(range(64)), np.arange(64), torch.arange(64), range(64)],
    ids=["tuple", "numpy", "tensor", "range"],
)
def test_rows_of_any_right_kind(train: Any) -> None:
    rows = TinyRecipe().train
    recipe = TinyRecipe()
    own = recipe.collate
    assert mistakes(changed(train=train, collate=lambda e: own([rows[int(i)] for i in e]))) == {}


@pytest.mark.parametrize(
    ("batch", "value"),
    [
        ([torch.ones(2)], "a list"),
        (torch.ones(2), "a Tensor"),
        ({"x": torch.ones(2), "y": [1, 2]}, "y: list"),
        ({"x": None}, "x: NoneType"),
    ],
    ids=["list", "tensor", "list_inside", "none_inside"],
)
def test_a_batch_of_the_wrong_kind(batch: Any, value: str) -> None:
    found = mistakes(changed(collate=lambda rows: batch))
    assert found["recipe's collate"].value == value


def test_counts_and_losses_of_the_wrong_shape_at_once() -> None:
    right = TinyRecipe()
    recipe = changed(
        num_supervised=lambda batch: right.num_supervised(batch).sum(),
        losses=lambda model, batch: right.losses(model, batch).mean(),
    )
    found = mistakes(recipe)
    assert set(found) == {"recipe's num_supervised", "recipe's losses"}
    assert "one value per example" in found["recipe's losses"].rule
    assert "loss(model, batch)" in found["recipe's losses"].remedy
    floats = changed(num_supervised=lambda batch: right.num_supervised(batch).float())
    assert "whole numbers" in mistakes(floats)["recipe's num_supervised"].rule


@pytest.mark.parametrize("place", ["collate", "num_supervised", "losses"])
def test_code_that_raises_is_the_runs(place: str) -> None:
    def fail(*args: Any) -> Any:
        raise KeyError("gone")

    assert mistakes(changed(**{place: fail})) == {}


def test_facts_by_default() -> None:
    """Source and length from the row, whether it is a dictionary or an object."""
    config = Config.model_validate(config_tree())
    own = TinyRecipe()
    expected = [own.facts(row) for row in own.train]
    bare = changed(facts=None)
    assert NativeWorkload(bare, config, Path("x.py")).facts() == expected
    mapped = changed(facts=None, train=[vars(row) for row in own.train])
    assert NativeWorkload(mapped, config, Path("x.py")).facts() == expected


def test_lengths_by_default_come_from_the_collator() -> None:
    config = Config.model_validate(config_tree())
    own = TinyRecipe()

    def collate(rows: Any) -> Any:
        torch.rand(1)  # masks drawn at random must not move the run
        return own.collate([own.train[i] for i in rows])

    recipe = changed(facts=None, train=list(range(64)), collate=collate)
    before = torch.get_rng_state()
    facts = NativeWorkload(recipe, config, Path("x.py")).facts()
    assert torch.equal(torch.get_rng_state(), before)
    assert [f.num_tokens for f in facts] == [len(row.input_ids) for row in own.train]
    assert {f.source for f in facts} == {"train"}


def test_a_tiny_version_either_way() -> None:
    config = Config.model_validate(config_tree())
    tiny = torch.nn.Linear(1, 1)
    assert CompleteRecipe(changed(mini=lambda: tiny), config).build_model("mini") is tiny
    by_scale = changed(build_model=lambda scale: {"mini": tiny}[scale])
    assert CompleteRecipe(by_scale, config).build_model("mini") is tiny
