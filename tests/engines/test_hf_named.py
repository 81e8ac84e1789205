"""Training arguments by name: what a Trainer's arguments take, and what is refused."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Literal

import pytest

from pilot.engines.hf.named import argument_mistakes, argument_table


class Kind(enum.Enum):
    ONE, TWO = "one", "two"


@dataclasses.dataclass
class Arguments:
    adam_beta2: float = 0.999
    dataloader_num_workers: int = 0
    remove_unused_columns: bool = True
    kind: Kind | str = "one"
    label_names: list[str] | None = None
    accelerator_config: dict[str, Any] | str | None = None
    strategy: str = dataclasses.field(default="a", metadata={"choices": ["a", "b"]})
    way: Literal["x", "y"] = "x"
    anything: Any = None
    hub_token: str | None = "hf_secret"
    derived: int = dataclasses.field(default=0, init=False)


TABLE = argument_table(Arguments, Arguments())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("adam_beta2", 0.95),
        ("adam_beta2", 1),
        ("dataloader_num_workers", 2),
        ("remove_unused_columns", False),
        ("kind", "two"),
        ("label_names", ["a"]),
        ("label_names", None),
        ("accelerator_config", {"split_batches": True}),
        ("strategy", "b"),
        ("way", "y"),
        ("anything", [1, {}]),
    ],
)
def test_a_value_that_fits(name: str, value: Any) -> None:
    assert argument_mistakes({name: value}, TABLE) == []


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("adam_beta2", "0.95", "must be a number"),
        ("adam_beta2", True, "must be a number"),
        ("adam_beta2", None, "must be a number"),
        ("adam_beta2", float("nan"), "must be finite"),
        ("dataloader_num_workers", 2.5, "must be a whole number"),
        ("remove_unused_columns", 1, "must be true or false"),
        ("kind", "twoo", "must be one of one, two; did you mean 'two'?"),
        ("strategy", "c", "must be one of a, b"),
        ("label_names", "a", "must be a list or null"),
        ("adam_beta3", 0.9, "no such name"),
        ("derived", 1, "no such name"),
        ("learning_rate", 1e-3, "a key of its own"),
        ("output_dir", "x", "pilot switches it off"),
        ("save_steps", 5, "pilot switches it off"),
        ("hub_token", "x", "pilot switches it off"),
    ],
)
def test_a_value_that_does_not(name: str, value: Any, rule: str) -> None:
    (mistake,) = argument_mistakes({name: value}, TABLE)
    assert rule in mistake.rule and mistake.key == f"recipe.arguments.{name}"


def test_remedies_name_the_near_and_the_own_key() -> None:
    found = argument_mistakes({"adam_beta3": 0.9, "warmup_steps": 3}, TABLE)
    assert [m.remedy for m in found] == [
        "did you mean 'adam_beta2'?",
        "write full_run.warmup_steps=...",
    ]


@pytest.mark.parametrize("value", [5, "a", ["adam_beta2"]])
def test_what_is_no_dictionary(value: Any) -> None:
    (mistake,) = argument_mistakes(value, TABLE)
    assert mistake.key == "recipe.arguments" and "dictionary" in mistake.rule


def test_secrets_are_not_in_the_table() -> None:
    assert TABLE["hub_token"]["own"] is None and TABLE["adam_beta2"]["own"] == 0.999
    assert "derived" not in TABLE
