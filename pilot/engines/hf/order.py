"""The rows of a Trainer's whole run in the order of its loader, known before it trains."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pilot.arms.price import rows_needed
from pilot.arms.specs import arm_specs
from pilot.config import Config
from pilot.engines import seeds
from pilot.engines.hf.ranks import in_order
from pilot.engines.hf.rates import planned_rates
from pilot.engines.hf.rows import (
    Rows,
    inner_batch_sampler,
    planned_batches,
    set_epoch,
    untouched,
)
from pilot.engines.hf.validation import num_rows
from pilot.engines.team import team
from pilot.plan import last_drawn_step
from pilot.schedule import TRAINER, RateTable

if TYPE_CHECKING:
    import numpy.typing as npt

_COMPARED_BATCHES = 8
_SAME_FOR_ALL_BATCHES = ("RandomSampler", "SeedableRandomSampler", "SequentialSampler")


def num_train_rows(loader: Any) -> int | None:
    """Training rows, as the loader sees them; None: a stream, whose rows have no ids."""
    return None if inner_batch_sampler(loader) is None else num_rows(loader.dataset)


def max_steps(trainer: Any, loader: Any) -> int:
    """Optimizer steps of the Trainer's full run."""
    return int(trainer.set_initial_training_values(trainer.args, loader)[-1])


def planned_steps(trainer: Any, loader: Any, num_steps: int) -> Sequence[list[Rows]]:
    """The micro-batches of this process, step by step; the run is not moved by the look ahead."""
    with untouched(loader):
        return planned_batches(trainer, loader, num_steps)


def of_all_processes(steps: Sequence[list[Rows]]) -> list[Rows]:
    """The rows of each step, of all processes; each draws its own."""
    together = team()
    steps_of = [steps] if together is None else together.gather(list(steps))
    return [in_order(batches_of) for batches_of in zip(*steps_of, strict=False)]


def own_order(trainer: Any, loader: Any, count: int) -> npt.NDArray[np.int64] | None:
    """The first ``count`` ids that the loader draws; None: rows have no ids."""
    if num_train_rows(loader) is None:
        return None
    args = trainer.args
    width = args.train_batch_size * args.gradient_accumulation_steps * max(1, args.world_size)
    steps = planned_steps(trainer, loader, -(-count // width) + len(loader))
    flat = [row for step in of_all_processes(steps) for row in step]
    return np.array(flat[:count], dtype=np.int64)


def order_is_fixed(loader: Any) -> bool:
    """Whether the loader draws the same rows whatever the random state is when it begins."""
    if num_train_rows(loader) is None:
        return True  # the order of a stream is its own
    sampler, drawn = inner_batch_sampler(loader), []
    for seed in (1, 2) if sampler is not None else ():
        with untouched(loader):
            seeds.seed_everything(seed)
            set_epoch(loader, sampler, 0)
            drawn.append([list(batch) for batch in itertools.islice(sampler, _COMPARED_BATCHES)])
    return not drawn or drawn[0] == drawn[1]


def drawn_by_pilot(
    trainer: Any, loader: Any, config: Config, count: int
) -> npt.NDArray[np.int64] | None:
    """Every row that the pilot or one of its arms may draw; None where that is not known.

    ``count``: the training rows.
    """
    kind = type(getattr(inner_batch_sampler(loader), "sampler", None)).__name__
    widths = any(spec.variable.startswith("batch.") for spec in arm_specs(config))
    if widths and kind not in _SAME_FOR_ALL_BATCHES:
        return None
    if not order_is_fixed(loader):
        return None
    rates = planned_rates(trainer, max_steps(trainer, loader))
    table = RateTable(rates=tuple(rates), base_rate=config.optim.learning_rate)
    if config.full_run.schedule == TRAINER and not table.peak > 0.0:
        return None
    last = last_drawn_step(config, count, table)
    return own_order(trainer, loader, rows_needed(config, last))
