"""Which learning rates a Trainer's own scheduler plans: measured on a twin, before the run.

The twin is a copy of the scheduler on an optimizer of its own with the same parameter groups, and
is stepped once per optimizer step. The user's scheduler and optimizer are never moved. What reacts
to metrics (``ReduceLROnPlateau``, ``GreedyLR``) cannot be planned: its twin stands still, and the
result says why.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pilot.engines import seeds
from pilot.engines.hf.twin import (
    TwinOptimizer,
    chain,
    innermost,
    reacts_to_metrics,
    twin_optimizer,
    twin_scheduler,
)
from pilot.engines.hf.used_rates import number
from pilot.own_rates import OwnRates, plain_options

# A longer run is planned as far as this goes: 10 s of stepping (20 us a step), 32 MB.
_MAX_STEPS, _MAX_VALUES = 500_000, 4_000_000


def planned_rates(trainer: Any, max_steps: int) -> Sequence[float]:
    """The learning rates of a Trainer that has not begun: those of the first parameter group.

    Empty where they cannot be known yet: an optimizer that the user's own method makes, and a
    scheduler that reacts to metrics or cannot be copied.
    """
    optimizer = _expected_optimizer(trainer)
    if optimizer is None:
        return ()
    state = seeds.random_state()
    try:
        if trainer.lr_scheduler is None:
            twin, dummy = copy.copy(trainer), twin_optimizer(optimizer)
            twin.optimizer, twin.lr_scheduler = dummy, None
            scheduler = twin.create_scheduler(num_training_steps=max_steps)
        else:
            scheduler, dummy = twin_scheduler(trainer, trainer.lr_scheduler, optimizer)
        if reacts_to_metrics(scheduler):
            return ()
        rows, _ = _step_through(trainer, scheduler, dummy, 0, max_steps)
    except Exception:  # the run itself will tell, with its place
        return ()
    finally:
        seeds.set_random_state(state)
    return [row[0] for row in rows]


def measure_rates(trainer: Any, optimizer: Any, done: int, max_steps: int) -> OwnRates:
    """The rates that the Trainer's scheduler plans for the steps after ``done``.

    For a Trainer whose loop is about to begin: optimizer and scheduler are there. One step more
    than the run has is looked at: the rate that would follow its end.

    Args:
        trainer: the Trainer.
        optimizer: its optimizer, unwrapped.
        done: finished optimizer steps.
        max_steps: steps of the full run.
    """
    groups = optimizer.param_groups
    still = [number(group["lr"]) for group in groups]
    options = plain_options(groups)
    count = max(1, min(max_steps + 1 - done, _MAX_STEPS, _MAX_VALUES // max(1, len(groups))))
    scheduler, unknown, raises = trainer.lr_scheduler, "", ""
    rows = [still] * count
    name = type(innermost(scheduler)).__name__
    if reacts_to_metrics(scheduler):
        unknown = (
            f"{name} reacts to metrics: the pilot trains at the rate before its first reaction"
        )
    elif any(math.isnan(rate) for rate in still) or any(g.get("relative_step") for g in groups):
        unknown = f"{type(optimizer).__name__} finds its own step: it is given no learning rate"
    else:
        state = seeds.random_state()
        try:
            twin, dummy = twin_scheduler(trainer, scheduler, optimizer)
            rows, raises = _step_through(trainer, twin, dummy, done, count)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:200]
            unknown = f"{name} cannot be copied and looked at ({reason})"
        finally:
            seeds.set_random_state(state)
    rates = np.array(rows, dtype=np.float64).T
    return OwnRates(
        first_step=done + 1, rates=rates, options=options, unknown=unknown, raises=raises
    )


def _step_through(
    trainer: Any, scheduler: Any, dummy: TwinOptimizer, done: int, count: int
) -> tuple[list[list[float]], str]:
    """The rates of ``count`` steps, NaN after the scheduler raised, and what it raised, or ''.

    A schedule may ask the Trainer's own state for the step: it is counted on, and put back.
    """
    rows: list[list[float]] = []
    own, state = getattr(trainer.state, "global_step", 0), trainer.state
    # The class's method: one that was replaced on the object is a fault to be found, not the plan.
    step: Any = type(scheduler).step
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for index in range(count):
                if index:
                    state.global_step = done + index - 1  # counted on after this
                    step(scheduler)
                rows.append(dummy.rates)
    except Exception as error:
        if not rows:
            raise
        after, width = done + len(rows), len(rows[0])
        rows.extend([math.nan] * width for _ in range(count - len(rows)))
        if after >= done + count - 1:
            return rows, ""  # only the rate behind the run's end
        return rows, f"the scheduler raises after step {after}: {type(error).__name__}: {error}"
    finally:
        state.global_step = own
    return rows, ""


def _expected_optimizer(trainer: Any) -> Any:
    """The optimizer as it will be, as far as a scheduler asks; None: only the loop will tell."""
    from transformers import Trainer

    if trainer.optimizer is not None:
        return chain(trainer.optimizer, ("optimizer",))[-1]
    if type(trainer).create_optimizer is not Trainer.create_optimizer:
        return None
    given = getattr(trainer, "optimizer_cls_and_kwargs", None)
    rate = trainer.args.learning_rate if given is None else given[1].get("lr")
    if rate is None:
        return None
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=rate)
