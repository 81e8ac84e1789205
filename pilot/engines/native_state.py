"""The exact state of a native run, and how the engine goes back to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pilot.engines import seeds
from pilot.engines.state import copy_state, load_model_state, model_state

if TYPE_CHECKING:
    from pilot.engines.native import NativeEngine


def take_state(engine: NativeEngine) -> dict[str, Any]:
    """Trainable tensors and buffers, optimizer, scheduler, scaler, random states, step.

    Tensors are not copied. The place in the data is the step: each draws the same number of rows.
    """
    return {
        "step": engine.step,
        **model_state(engine.model),
        "optimizer": engine.optimizer.state_dict(),
        "scheduler": engine.rates.state_dict(),
        "scaler": engine.scaler.state_dict(),
        "random": seeds.random_state(),
        "probe": engine.probe.state_dict() if engine.probe else {},
    }


def put_state(engine: NativeEngine, state: Mapping[str, Any]) -> None:
    """Go back to what ``take_state`` returned, bit for bit."""
    load_model_state(engine.model, state)
    # The optimizer keeps what it is given: without a copy, training would change the snapshot.
    engine.optimizer.load_state_dict(copy_state(state["optimizer"]))
    engine.rates.load_state_dict(state.get("scheduler") or {})
    if state["scaler"]:
        engine.scaler.load_state_dict(dict(state["scaler"]))
    engine.step = int(state["step"])
    if engine.probe:
        engine.probe.load_state_dict(state["probe"])
    seeds.set_random_state(state["random"])
