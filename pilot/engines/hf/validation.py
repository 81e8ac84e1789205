"""Per-example validation losses of a Trainer: its own ``prediction_step`` on one row at a time.

One row at a time is right for every Trainer (a pair of preferences, a loss of the user's own), and
no padding is involved. The model is left in evaluation mode; ``training_step`` sets it back.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from pilot.data.held_out import NAME
from pilot.engines import seeds
from pilot.engines.base import Observer
from pilot.engines.guard import guard
from pilot.engines.hf.held_out import HeldOutRows, held_out_rows
from pilot.engines.hf.rows import supervised
from pilot.engines.hf.sharded import hides_tensors
from pilot.engines.validation import pick_rows
from pilot.memory import peak_memory_bytes
from pilot.records import Resource, ValidationRecord

_TIMED_ROWS = 4


def validation_sets(trainer: Any) -> dict[str, Any]:
    """The Trainer's evaluation sets by name, the first one primary; empty when it has none.

    Sets without rows are left out; where none is left, the rows that pilot holds out.
    """
    found = trainer.eval_dataset
    if found is None:
        found = _of_own_loader(trainer)
    sets = dict(found) if isinstance(found, dict) else {"validation": found}
    sets = {str(name): rows for name, rows in sets.items() if not _is_empty(rows)}
    held = held_out_rows(trainer)
    return sets if sets or held is None else {NAME: held}


def _is_empty(rows: Any) -> bool:
    return rows is None or (hasattr(rows, "__len__") and len(rows) == 0)


def _of_own_loader(trainer: Any) -> Any:
    """The set of a subclass that makes an evaluation loader without an ``eval_dataset``."""
    module = str(getattr(type(trainer).get_eval_dataloader, "__module__", ""))
    if module.partition(".")[0] in ("transformers", "trl"):
        return None
    state = seeds.random_state()
    try:
        return trainer.get_eval_dataloader().dataset
    except Exception:  # it needs a set as well: there is none
        return None
    finally:
        seeds.set_random_state(state)


def validate_all(
    trainer: Any,
    observer: Observer,
    *,
    at: str,
    step: int,
    limit: int | None,
    data_seed: int,
    attempt: int,
) -> list[ValidationRecord]:
    """Evaluate every set and tell the observer; the run's random state is as it was."""
    state, records = seeds.random_state(), []
    for index, (name, rows) in enumerate(validation_sets(trainer).items()):
        started = time.perf_counter()
        seeds.seed_everything(data_seed)  # a collator that masks at random: the same every time
        sums, counts = evaluate_rows(
            trainer, name, rows, limit=limit, data_seed=data_seed, step=step
        )
        record = ValidationRecord(
            at=at,
            step=step,
            name=name,
            primary=index == 0,
            loss=sum(sums) / sum(counts) if sum(counts) else float("nan"),
            loss_sums=tuple(sums),
            token_counts=tuple(counts),
            attempt=attempt,
        )
        memory = peak_memory_bytes(trainer.args.device)
        secs = time.perf_counter() - started
        resource = Resource(kind="validation", step=step, secs=secs, peak_memory_bytes=memory)
        observer.on_validation(record, resource)
        records.append(record)
    seeds.set_random_state(state)
    return records


def evaluate_rows(
    trainer: Any, name: str, dataset: Any, *, limit: int | None, data_seed: int, step: int
) -> tuple[list[float], list[int]]:
    """Loss sums and supervised tokens of each row of one set, in a fixed order."""
    is_held_out = isinstance(dataset, HeldOutRows)
    loader = dataset if is_held_out else trainer.get_eval_dataloader(dataset)
    model = trainer.model_wrapped
    if not hides_tensors(trainer):
        model = trainer.accelerator.unwrap_model(model)  # no collective operation
    sums: list[float] = []
    counts: list[int] = []
    model.eval()
    for row, example in _examples(loader, limit, data_seed):
        with guard(f"validation ({name})", step=step, row_ids=(row,)), torch.no_grad():
            batch = loader.collate_fn([example] * _copies(trainer))
            batch = batch if _generates(trainer) else trainer._prepare_inputs(batch)
            count = _count(trainer, batch)
            loss = trainer.prediction_step(model, batch, prediction_loss_only=True)[0]
            if loss is None:
                raise ValueError("the Trainer's prediction_step returned no loss")
            sums.append(float(loss) * count if count else 0.0)
            counts.append(count)
    return sums, counts


def expected_secs(trainer: Any, limit: int | None) -> float:
    """Expected seconds of one validation of all sets, ``limit`` rows of each, from a few rows."""
    sets = validation_sets(trainer)
    most = limit or 10**9
    total = sum(min(num_rows(rows) or most, most) for rows in sets.values())
    if not total:
        return 0.0
    state, begun = seeds.random_state(), time.perf_counter()
    name, rows = next(iter(sets.items()))
    _, counts = evaluate_rows(trainer, name, rows, limit=_TIMED_ROWS, data_seed=0, step=0)
    seeds.set_random_state(state)
    return (time.perf_counter() - begun) / max(1, len(counts)) * total


def num_rows(dataset: Any) -> int:
    """Rows of a set; 0 where it does not know."""
    return len(dataset) if hasattr(dataset, "__len__") else 0


def _examples(loader: Any, limit: int | None, data_seed: int) -> Iterable[tuple[int, Any]]:
    if isinstance(loader, HeldOutRows):
        return loader.examples(limit, data_seed)
    dataset = loader.dataset
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return enumerate(itertools.islice(iter(dataset), limit))
    rows: Sequence[int] = pick_rows(len(dataset), limit, data_seed)
    return ((row, dataset[row]) for row in rows)


def _count(trainer: Any, batch: Any) -> int:
    """Units of a row's loss: its supervised tokens where the loss is their mean, else the row.

    Only labels say that: the loss of a pair is no mean over the tokens of its completions.
    """
    if not isinstance(batch, Mapping) or not {"labels", "shift_labels"} & set(batch):
        return 1
    found = supervised(trainer, batch)
    return 1 if found is None else int(found)


def _generates(trainer: Any) -> bool:
    """Whether the Trainer makes its own batches out of prompts, each in several versions."""
    return hasattr(trainer, "num_generations")


def _copies(trainer: Any) -> int:
    """How often a row is in its batch: as often as the Trainer compares versions of it."""
    if not _generates(trainer):
        return 1
    return int(getattr(trainer, "num_generations_eval", None) or trainer.num_generations)
