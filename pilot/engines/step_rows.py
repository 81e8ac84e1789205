"""What the rows of one step are: their sources, their lengths, and their identity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pilot.engines.complete import CompleteRecipe, batch_lengths, length_of, source_of
from pilot.engines.guard import guard
from pilot.engines.stream import rows_hash
from pilot.memory import peak_memory_bytes
from pilot.probe_record import StepFacts
from pilot.recipe import Batch
from pilot.records import Resource

Move = Callable[[Batch], Batch]


@dataclass(frozen=True, kw_only=True)
class StepRows:
    """The micro-batches of one step, in their order.

    ``row_ids`` and ``batches`` (on the device) per micro-batch; ``counts`` are their supervised
    units, as far as they are known before the loss. ``examples`` are all rows of the step.
    """

    row_ids: Sequence[tuple[int, ...]]
    examples: Sequence[Any]
    on_host: Sequence[Batch]
    batches: Sequence[Batch]
    counts: Sequence[int]


def make_batches(
    recipe: CompleteRecipe, step: int, row_ids: tuple[int, ...], size: int, move: Move
) -> StepRows:
    """Fetch the rows of a step and collate them, ``size`` at a time; ``move`` to the device."""
    chunks = [row_ids[i : i + size] for i in range(0, len(row_ids), size)]
    examples: list[Any] = []
    on_host, batches, counts = [], [], []
    for chunk in chunks:
        with guard("data", step=step, row_ids=chunk):
            examples += recipe.examples(chunk)
        with guard("collate", step=step, row_ids=chunk):
            batch = recipe.collate(examples[len(examples) - len(chunk) :])
            counts.append(sum(recipe.units(batch, len(chunk))))
            on_host.append(batch)
            batches.append(move(batch))
    return StepRows(
        row_ids=chunks, examples=examples, on_host=on_host, batches=batches, counts=counts
    )


def step_facts(
    recipe: CompleteRecipe, rows: StepRows, *, step: int, learning_rate: float, num_supervised: int
) -> StepFacts:
    """What the host knows of a step.

    Lengths are the recipe's own ``facts``, or those of ``input_ids`` in the rows, or of the
    batches; a row without tokens counts as one. Rows of a stream have no ids: their contents make
    the hash.
    """
    lengths, sources = _lengths_and_sources(recipe, rows.examples, rows.on_host)
    is_stream = recipe.stream is not None
    return StepFacts(
        step=step,
        learning_rate=learning_rate,
        num_supervised_tokens=num_supervised,
        num_tokens=sum(lengths),
        row_ids=() if is_stream else tuple(row for chunk in rows.row_ids for row in chunk),
        longest_tokens=max(lengths, default=0),
        source_counts=dict(sorted(Counter(sources).items())),
        row_hash=rows_hash(rows.examples) if is_stream else "",
    )


def _lengths_and_sources(
    recipe: CompleteRecipe, examples: Sequence[Any], batches: Sequence[Batch]
) -> tuple[list[int], list[str]]:
    if recipe.has_facts:
        facts = [recipe.facts(example) for example in examples]
        return [fact.num_tokens for fact in facts], [fact.source for fact in facts]
    own = [length_of(example) for example in examples]
    known = [length for length in own if length is not None]
    if len(known) < len(own):
        made = [length for batch in batches for length in batch_lengths(batch)]
        known = made or [1] * len(examples)
    return known, [source_of(example) for example in examples]


def step_resource(step: int, secs: float, num_tokens: int, device: torch.device) -> Resource:
    """Seconds and memory of a step."""
    return Resource(
        kind="step",
        step=step,
        secs=secs,
        tokens_per_sec=num_tokens / secs if secs > 0 else None,
        peak_memory_bytes=peak_memory_bytes(device) if device.type == "cuda" else None,
    )
