"""A recipe with everything that the native engine uses: what the user leaves out has a default."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from pilot.config import Config
from pilot.engines import seeds
from pilot.engines.guard import require_shape
from pilot.engines.stream import Stream
from pilot.recipe import Batch, RowFacts, Scale

_HEAD_ROWS = 256  # of a stream, looked at before training: labels, contract
_DEFAULT_SOURCE = "train"


def complete(recipe: Any, config: Config) -> CompleteRecipe:
    """``recipe`` as what ``build`` returned, or as it is when it is complete already."""
    return recipe if isinstance(recipe, CompleteRecipe) else CompleteRecipe(recipe, config)


def is_stream(rows: Any) -> bool:
    """Whether rows can only be taken one after the other: no length, or no index."""
    if isinstance(rows, torch.utils.data.IterableDataset):  # torch gives it an index that raises
        return True
    return not (hasattr(rows, "__len__") and hasattr(rows, "__getitem__"))


class CompleteRecipe:
    """What the native engine trains.

    Args:
        recipe: what the user's ``build`` returned; the contract has been checked, or its failures
            are the run's.
        config: batch, seeds and lengths of the run.
    """

    def __init__(self, recipe: Any, config: Config) -> None:
        self.own = recipe
        self.train = recipe.train
        self.has_losses = callable(getattr(recipe, "losses", None))
        self.has_facts = callable(getattr(recipe, "facts", None))
        self.counts_units = callable(getattr(recipe, "num_supervised", None))
        self.stream: Stream | None = None
        if is_stream(self.train):
            width = config.batch.micro_batch_size * config.batch.grad_accum_steps
            # The cool-down goes on from the end of the peak, and its rows are used again behind it.
            kept = max(_HEAD_ROWS, width * (config.pilot.cooldown_steps + 2))
            self.stream = Stream(self.train, seed=config.pilot.data_seed, keep_rows=kept)
        self.validation = _validation_sets(getattr(recipe, "validation", None), config)
        self._has_lengths: bool | None = None

    @property
    def num_rows(self) -> int | None:
        """Training rows; None: a stream."""
        return None if self.stream is not None else len(self.train)

    def examples(self, row_ids: Sequence[int]) -> list[Any]:
        """The rows with these ids; of a stream, those at these places from its start."""
        if self.stream is not None:
            return self.stream.rows(row_ids)
        return [self.train[row] for row in row_ids]

    def head(self) -> Sequence[Any]:
        """All rows, or the first of a stream."""
        rows: Sequence[Any] = self.train if self.stream is None else self.stream.head(_HEAD_ROWS)
        return rows

    def build_model(self, scale: Scale) -> torch.nn.Module:
        """The model; a tiny one by ``mini()`` or ``build_model("mini")``."""
        mini = getattr(self.own, "mini", None)
        if scale == "mini" and callable(mini):
            model: torch.nn.Module = mini()
            return model
        takes = inspect.signature(self.own.build_model).parameters
        model = self.own.build_model(scale) if takes else self.own.build_model()
        return model

    def collate(self, examples: Sequence[Any]) -> Batch:
        """The recipe's own."""
        return self.own.collate(examples)  # type: ignore[no-any-return]

    def losses(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """The recipe's own; only where ``has_losses``."""
        return self.own.losses(model, batch)  # type: ignore[no-any-return]

    def loss(self, model: torch.nn.Module, batch: Batch) -> Any:
        """The recipe's own; only where it has no ``losses``."""
        return self.own.loss(model, batch)

    def num_supervised(self, batch: Batch) -> torch.Tensor:
        """The recipe's own; only where ``counts_units``."""
        return self.own.num_supervised(batch)  # type: ignore[no-any-return]

    def units(self, batch: Batch, num_rows: int) -> list[int]:
        """Supervised units of each example: tokens, or rows where the recipe does not count.

        Raises:
            ContractError: ``num_supervised`` returned something else than one count per example.
        """
        if not self.counts_units:
            return [1] * num_rows
        counts = self.num_supervised(batch)
        require_shape("num_supervised", counts, num_rows)
        return [int(count) for count in counts.tolist()]

    def facts(self, example: Any) -> RowFacts:
        """Source and length of a row; without lengths of its own a row may have to be collated."""
        if self.has_facts:
            return self.own.facts(example)  # type: ignore[no-any-return]
        tokens = length_of(example)
        if tokens is None and self._has_lengths is not False:
            tokens = self._collated_length(example)
            self._has_lengths = tokens is not None
        return RowFacts(
            source=source_of(example),
            num_tokens=1 if tokens is None else tokens,
            num_supervised_tokens=supervised_of(example, 1 if tokens is None else tokens),
        )

    def _collated_length(self, example: Any) -> int | None:
        state = seeds.random_state()
        try:
            return max(batch_lengths(self.collate([example])), default=None)
        finally:
            seeds.set_random_state(state)


def source_of(example: Any) -> str:
    """The source of a row: its ``source`` (key or attribute), or ``train``."""
    found = _field(example, "source")
    return _DEFAULT_SOURCE if found is None else str(found)


def length_of(example: Any) -> int | None:
    """Tokens of a row by its ``input_ids``; None where it has none."""
    ids = _field(example, "input_ids")
    return len(ids) if hasattr(ids, "__len__") else None


def supervised_of(example: Any, num_tokens: int) -> int:
    """Supervised tokens of a row by its ``labels``; all where it has none."""
    labels = _field(example, "labels")
    if not hasattr(labels, "__len__"):
        return num_tokens
    try:
        return sum(int(label) != -100 for label in list(labels)[1:])
    except (TypeError, ValueError):  # labels of another kind: no ids
        return num_tokens


def batch_lengths(batch: Batch) -> list[int]:
    """Tokens of each row of a batch on the host, by its mask or its ids; empty: it has none."""
    mask, ids = batch.get("attention_mask"), batch.get("input_ids")
    if isinstance(mask, torch.Tensor) and mask.dim() == 2:
        return [int(length) for length in mask.sum(dim=1).tolist()]
    if isinstance(ids, torch.Tensor) and ids.dim() > 1:
        return [int(ids.shape[-1])] * len(ids)
    return []


def _field(example: Any, name: str) -> Any:
    if isinstance(example, Mapping):
        return example.get(name)
    return getattr(example, name, None)


def _validation_sets(found: Any, config: Config) -> dict[str, Sequence[Any]]:
    if found is None:
        return {}
    sets = found if isinstance(found, Mapping) else {"validation": found}
    return {str(name): _as_rows(rows, config) for name, rows in sets.items()}


def _as_rows(rows: Any, config: Config) -> Sequence[Any]:
    """Rows with an index; of a stream the first ones, with random numbers of their own."""
    if not is_stream(rows):
        return rows  # type: ignore[no-any-return]
    state = seeds.random_state(with_gpus=False)
    seeds.set_random_state(seeds.cpu_state_of(config.pilot.data_seed))
    try:
        source: Iterable[Any] = rows() if not hasattr(rows, "__iter__") else rows
        return list(itertools.islice(source, config.pilot.validation_rows))
    finally:
        seeds.set_random_state(state)
