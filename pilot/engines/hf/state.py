"""The exact state of a Trainer, and how a Trainer in a fresh process begins from it.

A Trainer resumes from a folder: it reads the step from ``trainer_state.json``, draws and drops the
batches that were trained on, and loads weights, optimizer, schedule and random states by methods of
its own. Those methods are replaced by ours for one call, so a state is one of pilot's own files and
the Trainer's way of finding its place in the data is used as it is.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pilot.engines import seeds
from pilot.engines.hf.ranks import num_ranks, own_rank
from pilot.engines.hf.tap import Tap
from pilot.engines.state import copy_state, load_model_state, model_state
from pilot.engines.team import team
from pilot.errors import PilotError


def take(tap: Tap) -> dict[str, Any]:
    """Everything that the next steps depend on; tensors are not copied."""
    trainer = tap.trainer
    scaler, random, together = trainer.accelerator.scaler, seeds.random_state(), team()
    return {
        "step": tap.step,
        **model_state(tap.model),
        "optimizer": tap.optimizer.state_dict(),
        "scheduler": trainer.lr_scheduler.state_dict(),
        "scaler": scaler.state_dict() if scaler is not None else {},
        "random": random,
        "random_of": together.gather(random) if together is not None else [],
        "probe": tap.probe.state_dict(),
        "trainer_state": json.dumps(dataclasses.asdict(trainer.state), default=str),
        "num_drawn": tap.num_drawn,
    }


def put(tap: Tap, state: Mapping[str, Any]) -> None:
    """Go back to ``state`` in a Trainer whose optimizer exists, bit for bit."""
    load_model_state(tap.model, state)
    load_optimizer(tap, state)
    tap.step = int(state["step"])
    tap.probe.load_state_dict(state["probe"])
    _set_random(state)


def _set_random(state: Mapping[str, Any]) -> None:
    """The random state of this process."""
    states = state.get("random_of") or [state["random"]]
    if len(states) != num_ranks():
        raise PilotError(f"a state of {len(states)} processes cannot go on in {num_ranks()}")
    seeds.set_random_state(states[own_rank()])


def load_optimizer(tap: Tap, state: Mapping[str, Any]) -> None:
    """Optimizer, schedule and loss scaler."""
    trainer = tap.trainer
    # The optimizer keeps what it is given: without a copy, training would change the snapshot.
    tap.optimizer.load_state_dict(copy_state(state["optimizer"]))
    trainer.lr_scheduler.load_state_dict(copy_state(state["scheduler"]))
    if state["scaler"] and trainer.accelerator.scaler is not None:
        trainer.accelerator.scaler.load_state_dict(dict(state["scaler"]))


def resume_folder(tap: Tap, state: Mapping[str, Any], folder: Path) -> str:
    """Let the Trainer begin with the step after ``state``; returns what ``train`` is given."""
    trainer = tap.trainer
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trainer_state.json").write_text(str(state["trainer_state"]), encoding="utf-8")

    def load_model(*args: Any, **more: Any) -> None:
        load_model_state(tap.model, state)

    def load_rest(*args: Any, **more: Any) -> None:
        load_model_state(tap.model, state)  # `prepare` may have moved it
        load_optimizer(tap, state)

    def load_random(*args: Any, **more: Any) -> None:
        _set_random(state)

    replaced: dict[str, Callable[..., None]] = {
        "_load_from_checkpoint": load_model,
        "_load_optimizer_and_scheduler": load_rest,
        "_load_scaler": lambda *args, **more: None,
        "_load_rng_state": load_random,
    }
    for name, method in replaced.items():
        setattr(trainer, name, method)
    return str(folder)
