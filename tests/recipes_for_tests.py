"""Small real recipes for tests of the engine: a linear language model with dropout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pilot.recipe import Batch, RowFacts, Scale

VOCAB = 17


class TinyLm(torch.nn.Module):
    """Embedding, dropout, linear: enough to have random state and a loss that goes down."""

    def __init__(self, width: int = 8, dropout: float = 0.2) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(VOCAB, width)
        self.drop = torch.nn.Dropout(dropout)
        self.head = torch.nn.Linear(width, VOCAB)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.embed(ids)))


@dataclass(frozen=True)
class Example:
    """Token ids and labels of one row; -100 is not supervised."""

    input_ids: tuple[int, ...]
    labels: tuple[int, ...]
    source: str


class TinyRecipe:
    """Rows of unequal length from two sources; the token is followed by itself plus one."""

    def __init__(self, num_rows: int = 64, seed: int = 0, dropout: float = 0.2) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.dropout = dropout
        self.train = [self._row(i, generator) for i in range(num_rows)]
        self.validation = {"validation": [self._row(i, generator) for i in range(12)]}

    def _row(self, index: int, generator: torch.Generator) -> Example:
        length = int(torch.randint(3, 11, (1,), generator=generator))
        first = int(torch.randint(VOCAB, (1,), generator=generator))
        ids = tuple((first + k) % VOCAB for k in range(length))
        labels = (-100, *ids[1:])
        return Example(input_ids=ids, labels=labels, source="ab"[index % 4 == 0])

    def facts(self, example: Any) -> RowFacts:
        return RowFacts(
            source=example.source,
            num_tokens=len(example.input_ids),
            num_supervised_tokens=len(example.input_ids) - 1,
        )

    def build_model(self, scale: Scale) -> torch.nn.Module:
        return TinyLm(dropout=self.dropout)

    def collate(self, examples: Sequence[Any]) -> dict[str, torch.Tensor]:
        width = max(len(e.input_ids) for e in examples)
        pad = lambda row, fill: [*row, *([fill] * (width - len(row)))]  # noqa: E731
        return {
            "input_ids": torch.tensor([pad(e.input_ids, 0) for e in examples]),
            "labels": torch.tensor([pad(e.labels, -100) for e in examples]),
        }

    def num_supervised(self, batch: Batch) -> torch.Tensor:
        return (batch["labels"][:, 1:] != -100).sum(dim=1)

    def losses(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        logits = model(batch["input_ids"])[:, :-1]
        labels = batch["labels"][:, 1:]
        flat = torch.nn.functional.cross_entropy(
            logits.reshape(-1, VOCAB).double()
            if logits.dtype == torch.float64
            else logits.reshape(-1, VOCAB).float(),
            labels.reshape(-1),
            reduction="none",
            ignore_index=-100,
        )
        return flat.view(labels.shape).sum(dim=1)


def build(settings: dict[str, Any], *, sequence_length: int | None, seed: int) -> TinyRecipe:
    """The recipe contract's entry point."""
    return TinyRecipe()
