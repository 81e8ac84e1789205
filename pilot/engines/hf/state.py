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

# What a Trainer that makes its own batches keeps between steps: prompts are answered once for
# several of them.
_ROLLOUT = ("_step", "_buffered_inputs")


def rollout(trainer: Any) -> dict[str, Any]:
    """Where a Trainer that generates is in its generated batches; empty for any other."""
    if not hasattr(trainer, "num_generations"):
        return {}
    return {name: getattr(trainer, name) for name in _ROLLOUT if hasattr(trainer, name)}


def set_rollout(trainer: Any, state: Mapping[str, Any]) -> None:
    """Put back what ``rollout`` returned."""
    for name, value in state.items():
        setattr(trainer, name, value)


def _moving_reference(trainer: Any) -> Any:
    """The reference model of a Trainer that moves it after the trained one; else None."""
    moves = getattr(trainer.args, "sync_ref_model", False)
    return getattr(trainer, "ref_model", None) if moves else None


def take(tap: Tap) -> dict[str, Any]:
    """Everything that the next steps depend on; tensors are not copied."""
    trainer = tap.trainer
    scaler, reference = trainer.accelerator.scaler, _moving_reference(trainer)
    together = team()
    own = {"random": seeds.random_state(), **tap.data.state(), "rollout": rollout(trainer)}
    return {
        "step": tap.step,
        **model_state(tap.model),
        "optimizer": tap.optimizer.state_dict(),
        "scheduler": trainer.lr_scheduler.state_dict(),
        "scaler": scaler.state_dict() if scaler is not None else {},
        "probe": tap.probe.state_dict(),
        "trainer_state": json.dumps(
            {**dataclasses.asdict(trainer.state), "global_step": tap.step}, default=str
        ),
        **own,
        "of_processes": together.gather(own) if together is not None else [],
        "reference": reference.state_dict() if reference is not None else {},
    }


def put(tap: Tap, state: Mapping[str, Any]) -> None:
    """Go back to ``state`` in a Trainer whose optimizer exists, bit for bit."""
    load_model_state(tap.model, state)
    load_optimizer(tap, state)
    tap.step, tap.data.num_drawn = int(state["step"]), int(state["num_drawn"])
    tap.probe.load_state_dict(state["probe"])
    seeds.set_random_state(state["random"])


def of_this_process(state: Mapping[str, Any]) -> dict[str, Any]:
    """``state`` with the random states and the place in the data of this process.

    Raises:
        PilotError: it is of another number of processes.
    """
    parts = state.get("of_processes") or [{}]
    if len(parts) != num_ranks():
        raise PilotError(f"a state of {len(parts)} processes cannot go on in {num_ranks()}")
    return {**state, **parts[own_rank()]}


def load_optimizer(tap: Tap, state: Mapping[str, Any]) -> None:
    """Optimizer, schedule, loss scaler, and what some Trainers keep beside them."""
    trainer = tap.trainer
    set_rollout(trainer, copy_state(state.get("rollout", {})))
    reference = _moving_reference(trainer)
    if reference is not None and state.get("reference"):
        reference.load_state_dict(state["reference"])
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
