"""Training rows without ids: the order they come in, going back a little, resuming, ending."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pilot.config import Config
from pilot.engines.base import Program, StepRequest
from pilot.engines.contract import batch_mistakes, structure_mistakes
from pilot.engines.native import NativeEngine
from pilot.engines.native_workload import NativeWorkload
from pilot.engines.state import copy_state
from pilot.engines.stream import Stream, StreamEnded, rows_hash
from pilot.errors import ConfigError, RecipeFailure
from pilot.experiments import determinism
from pilot.records import Outcome
from tests.recipes_for_tests import Example, TinyRecipe
from tests.trees import config_tree

Make = Callable[..., NativeEngine]


class Streamed(TinyRecipe):
    """The tiny recipe's rows, drawn at random for ever, without facts."""

    facts = None  # type: ignore[assignment]

    def __init__(self, dropout: float = 0.0, limit: int | None = None) -> None:
        super().__init__(dropout=dropout)
        rows = list(self.train)

        def draw() -> Iterator[Example]:
            for _ in range(limit) if limit is not None else itertools.count():
                yield rows[random.randrange(len(rows))]

        self.rows = rows
        self.train = draw  # type: ignore[assignment]


def config(**sections: Any) -> Config:
    return Config.model_validate(config_tree(**sections))


def train(engine: NativeEngine, last: int) -> list[Any]:
    def program() -> Program:
        while engine.step < last:
            yield StepRequest(learning_rate=0.1)
        engine.flush()
        return Outcome(status=Outcome.COMPLETED, last_step=last)

    engine.run(program())
    return engine.observer.steps  # type: ignore[attr-defined,no-any-return]


def test_rows_come_in_the_streams_own_order(make_engine: Make) -> None:
    class Listed(Streamed):
        def __init__(self) -> None:
            super().__init__()
            self.train = iter(self.rows)  # type: ignore[assignment]

    listed = make_engine(Listed())
    mapped = make_engine(TinyRecipe(dropout=0.0))
    mapped.order = np.arange(64)
    for a, b in zip(train(listed, 8), train(mapped, 8), strict=True):
        assert a.row_ids == () and b.row_ids != ()
        for name in ("loss", "grad_norm", "num_tokens", "longest_tokens", "source_counts"):
            assert getattr(a, name) == getattr(b, name), name
    assert not listed.capabilities.reports_row_ids and mapped.capabilities.reports_row_ids
    with pytest.raises(RecipeFailure, match="ended after 64 rows") as caught:
        listed.train_step(0.1)
    assert caught.value.where == "data" and isinstance(caught.value.error, StreamEnded)
    assert caught.value.step == 9 and caught.value.row_ids == tuple(range(64, 72))


def test_neither_seed_nor_dropout_nor_validations_change_the_rows(make_engine: Make) -> None:
    """Arms and replicas are compared on the same rows, though the stream draws at random."""
    plain = train(make_engine(Streamed()), 6)
    other = make_engine(Streamed(dropout=0.5), pilot={"seed": 9})
    other.request_validation("before")
    determinism.measure(other, other.rows_of(1))
    torch.rand(100), random.random()
    assert [r.row_hash for r in train(other, 6)] == [r.row_hash for r in plain]
    assert len({r.row_hash for r in plain}) == 6
    shuffled = train(make_engine(Streamed(), pilot={"data_seed": 1}), 6)
    assert [r.row_hash for r in shuffled] != [r.row_hash for r in plain]


def test_a_stream_does_not_move_the_run(make_engine: Make) -> None:
    """The random numbers of a stream are its own: dropout is that of a run over a list."""
    streamed = make_engine(Streamed(dropout=0.5))
    rows = [streamed.recipe.examples(streamed.rows_of(step)) for step in range(1, 6)]
    streamed = make_engine(Streamed(dropout=0.5))
    records = train(streamed, 5)
    listed: Any = TinyRecipe(dropout=0.5)
    listed.train = [row for step in rows for row in step]
    engine = make_engine(listed)
    engine.order = np.arange(40)
    assert [r.loss for r in train(engine, 5)] == [r.loss for r in records]


def test_a_resumed_run_skips_forward_to_the_same_rows(make_engine: Make) -> None:
    kind = {"_target_": "torch.optim.AdamW"}
    straight = train(make_engine(Streamed(dropout=0.5), optim=kind), 9)
    first = make_engine(Streamed(dropout=0.5), optim=kind)
    train(first, 4)
    state = copy_state(first.snapshot())  # before another engine seeds the generators
    resumed = make_engine(Streamed(dropout=0.5), optim=kind)
    resumed.restore(state)
    assert train(resumed, 9) == straight[4:]


def test_a_branch_goes_back_as_far_as_the_cool_down_is_long(make_engine: Make) -> None:
    pilot = {"cooldown_steps": 40}
    expected = train(make_engine(Streamed(), pilot=pilot), 44)
    engine = make_engine(Streamed(), pilot=pilot)
    train(engine, 4)
    state = copy_state(engine.snapshot())
    train(engine, 44)
    engine.restore(state)
    engine.observer.steps.clear()  # type: ignore[attr-defined]
    assert train(engine, 44) == expected[4:]
    train(engine, 80)
    engine.restore(state)
    with pytest.raises(RecipeFailure, match="cannot go back so far"):
        engine.train_step(0.1)


def test_determinism_is_measured_and_leaves_the_run(make_engine: Make) -> None:
    expected = train(make_engine(Streamed(dropout=0.5)), 4)
    engine = make_engine(Streamed(dropout=0.5))
    evidence = determinism.measure(engine, engine.rows_of(1))
    assert evidence.values["relative_spread"] == 0.0
    assert train(engine, 4) == expected


class _Iterable:
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


class _Torch(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))

    def __len__(self) -> int:
        return 5


@pytest.mark.parametrize(
    "make",
    [lambda: lambda: iter(range(5)), _Iterable, _Torch, lambda: iter(range(5))],
    ids=["function", "iterable", "torch", "iterator"],
)
def test_every_kind_of_stream(make: Any) -> None:
    stream = Stream(make(), seed=0, keep_rows=3)
    assert stream.head(2) == [0, 1] and stream.head(2) == [0, 1]
    assert stream.rows([3]) == [3] and stream.rows((1, 2, 3)) == [1, 2, 3]
    with pytest.raises(StreamEnded, match="after 5 rows"):
        stream.rows([5])
    assert stream.rows([4]) == [4]
    assert stream.rows([]) == []


def test_a_head_that_raises_is_cut_there() -> None:
    def rows() -> Iterator[int]:
        yield 1
        raise KeyError("gone")

    assert Stream(rows, seed=0, keep_rows=9).head(5) == [1]
    with pytest.raises(KeyError):
        Stream(rows, seed=0, keep_rows=9).rows([1])


@dataclass(frozen=True, slots=True)
class Slotted:
    """An object without a dictionary of attributes."""

    number: int


def test_hashes_tell_rows_apart() -> None:
    base = {"input_ids": [1, 2, 3], "labels": [1, 2, 3], "x": torch.ones(3), "n": np.zeros(2)}
    cyclic: dict[str, Any] = {}
    cyclic["self"] = cyclic
    changed = [
        {**base, "input_ids": [1, 2, 4]},
        {**base, "x": torch.zeros(3)},
        {**base, "x": torch.ones(3, dtype=torch.bfloat16)},
        {**base, "n": np.ones(2)},
        {**base, "text": "é"},
        Example(input_ids=(1,), labels=(1,), source="a"),
        Example(input_ids=(2,), labels=(1,), source="a"),
        Slotted(1),
        Slotted(2),
        {"text": "x" * 5000},
        {"text": "x" * 5001},
        {"a", "b"},
        cyclic,
        None,
        (1.5, b"ab"),
        [],
        torch.empty(0),
    ]
    hashes = [rows_hash([row]) for row in (base, *changed)]
    assert len(set(hashes)) == len(hashes)
    assert rows_hash([dict(base)]) == hashes[0] and len(hashes[0]) == 16


def test_a_workload_knows_what_it_does_not_know() -> None:
    workload = NativeWorkload(Streamed(), config(), Path("x.py"))
    workload.require_contract()
    assert workload.num_rows is None and workload.goes_back and workload.facts() == []
    audit = workload.audit(17, None)
    assert audit[0]["set"] == "train" and audit[0]["num_rows_checked"] == 256
    short = NativeWorkload(Streamed(limit=20), config(), Path("x.py"))
    assert short.audit(17, None)[0]["num_rows"] == 20


def test_epochs_of_a_stream_are_a_mistake() -> None:
    run = {"schedule_steps": None, "epochs": 2.0}
    with pytest.raises(ConfigError) as caught:
        NativeWorkload(Streamed(), config(full_run=run), Path("x.py")).require_contract()
    (found,) = caught.value.mistakes
    assert (found.key, found.value) == ("full_run.epochs", "2")
    assert "set full_run.schedule_steps" in found.remedy


def test_a_validation_set_may_be_a_stream_of_known_length() -> None:
    recipe: Any = Streamed()
    recipe.validation = recipe.train
    workload = NativeWorkload(recipe, config(pilot={"validation_rows": 8}), Path("x.py"))
    workload.require_contract()
    assert workload.validation_rows == {"validation": 8}
    again = NativeWorkload(recipe, config(pilot={"validation_rows": 8}), Path("x.py"))
    assert again.recipe.validation == workload.recipe.validation
    (found,) = structure_mistakes(recipe, config(pilot={"validation_rows": None}))
    assert "pilot.validation_rows must say" in found.rule


def test_an_empty_stream_is_the_runs_to_meet(make_engine: Make) -> None:
    engine = make_engine(Streamed(limit=0))
    assert batch_mistakes(engine.recipe) == []
    with pytest.raises(RecipeFailure, match="ended after 0 rows"):
        engine.train_step(0.1)


def test_facts_of_a_stream_that_raise_are_the_runs(make_engine: Make) -> None:
    """A list's facts are looked at by the survey; a stream's only when its rows come."""
    recipe: Any = Streamed()
    recipe.facts = lambda example: {}["gone"]
    with pytest.raises(RecipeFailure) as caught:
        train(make_engine(recipe), 2)
    assert (caught.value.where, caught.value.step) == ("facts", 1)
