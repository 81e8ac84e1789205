"""Per-example validation losses: fixed rows, evaluation mode, no gradients."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pilot.engines import seeds
from pilot.engines.guard import guard
from pilot.engines.losses import sums_of_rows
from pilot.engines.precision import autocast, to_device
from pilot.memory import peak_memory_bytes
from pilot.records import Resource, ValidationRecord

if TYPE_CHECKING:
    from pilot.engines.native import NativeEngine


def pick_rows(num_rows: int, limit: int | None, data_seed: int) -> list[int]:
    """The rows of a validation set that are evaluated: all, or a fixed random ``limit`` of them."""
    if limit is None or num_rows <= limit:
        return list(range(num_rows))
    chosen = np.random.default_rng((data_seed, num_rows)).permutation(num_rows)[:limit]
    return sorted(int(i) for i in chosen)


def validate_all(engine: NativeEngine, at: str) -> list[ValidationRecord]:
    """Evaluate every set and tell the observer; the run's random state is as it was."""
    pilot, records = engine.config.pilot, []
    state = seeds.random_state()
    for index, (name, examples) in enumerate(engine.recipe.validation.items()):
        started = time.perf_counter()
        rows = pick_rows(len(examples), pilot.validation_rows, pilot.data_seed)
        sums, counts = evaluate(engine, name, examples, rows)
        record = ValidationRecord(
            at=at,
            step=engine.step,
            name=name,
            primary=index == 0,
            loss=sum(sums) / sum(counts) if sum(counts) else float("nan"),
            loss_sums=tuple(sums),
            token_counts=tuple(counts),
            attempt=engine.attempt,
        )
        resource = Resource(
            kind="validation",
            step=engine.step,
            secs=time.perf_counter() - started,
            peak_memory_bytes=peak_memory_bytes(engine.device),
        )
        engine.observer.on_validation(record, resource)
        records.append(record)
    seeds.set_random_state(state)
    return records


def expected_secs(engine: NativeEngine) -> float:
    """Expected seconds of one validation of all sets, from its first batch."""
    begun, size = time.perf_counter(), _batch_rows(engine)
    limits = (engine.config.pilot.validation_rows, engine.config.pilot.data_seed)
    total = sum(len(pick_rows(len(r), *limits)) for r in engine.recipe.validation.values())
    if total:
        examples = next(iter(engine.recipe.validation.values()))
        _evaluate_batch(engine, "validation", examples, list(range(min(size, len(examples)))), None)
    return (time.perf_counter() - begun) * -(-total // size)


def evaluate(
    engine: NativeEngine, name: str, examples: Sequence[Any], rows: Sequence[int]
) -> tuple[list[float], list[int]]:
    """Loss sums and supervised units of each row, in the order of ``rows``.

    The model is left in evaluation mode; the next training step sets it back. A loss that is not
    finite is returned as it is.
    """
    sums: list[torch.Tensor] = []
    counts: list[int] = []
    engine.model.eval()
    size, place = _batch_rows(engine), f"validation ({name})"
    for begin in range(0, len(rows), size):
        found, units = _evaluate_batch(
            engine, place, examples, rows[begin : begin + size], engine.step
        )
        sums.append(found)
        counts.extend(units)
    values = torch.cat(sums).tolist() if sums else []
    return [float(v) for v in values], counts


def _batch_rows(engine: NativeEngine) -> int:
    """Rows of an evaluated batch: a loss of the whole batch is one of a row at a time."""
    return engine.config.batch.micro_batch_size if engine.recipe.has_losses else 1


def _evaluate_batch(
    engine: NativeEngine, place: str, examples: Sequence[Any], rows: Sequence[int], step: int | None
) -> tuple[torch.Tensor, list[int]]:
    recipe = engine.recipe
    with guard(place, step=step, row_ids=rows), torch.no_grad():
        batch = recipe.collate([examples[i] for i in rows])
        counts = recipe.units(batch, len(rows))
        moved = to_device(batch, engine.device, engine.dtype)
        with autocast(engine.config.precision, engine.device):
            return sums_of_rows(recipe, engine.model, moved, counts)
