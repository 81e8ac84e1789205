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
from pilot.engines.hf.tap import Tap
from pilot.engines.state import copy_state, load_model_state, model_state


def take(tap: Tap) -> dict[str, Any]:
    """Everything that the next steps depend on; tensors are not copied."""
    trainer = tap.trainer
    scaler = trainer.accelerator.scaler
    return {
        "step": tap.step,
        **model_state(tap.model),
        "optimizer": tap.optimizer.state_dict(),
        "scheduler": trainer.lr_scheduler.state_dict(),
        "scaler": scaler.state_dict() if scaler is not None else {},
        "random": seeds.random_state(),
        "probe": tap.probe.state_dict(),
        "trainer_state": json.dumps(
            {**dataclasses.asdict(trainer.state), "global_step": tap.step}, default=str
        ),
        **tap.data.state(),
    }


def put(tap: Tap, state: Mapping[str, Any]) -> None:
    """Go back to ``state`` in a Trainer whose optimizer exists, bit for bit."""
    load_model_state(tap.model, state)
    load_optimizer(tap, state)
    tap.step, tap.data.num_drawn = int(state["step"]), int(state["num_drawn"])
    tap.probe.load_state_dict(state["probe"])
    seeds.set_random_state(state["random"])


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
        tap.data.load_random()

    replaced: dict[str, Callable[..., None]] = {
        "_load_from_checkpoint": load_model,
        "_load_optimizer_and_scheduler": load_rest,
        "_load_scaler": lambda *args, **more: None,
        "_load_rng_state": load_random,
    }
    for name, method in replaced.items():
        setattr(trainer, name, method)
    return str(folder)
