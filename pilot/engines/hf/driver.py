"""Hands the events of a Trainer's loop on to who runs a program inside it."""

from __future__ import annotations

from typing import Any, Protocol

from transformers import TrainerCallback

from pilot.engines.hf.tap import Tap


class LoopEnd(Exception):
    """Leaves the Trainer's loop where it cannot be asked to stop."""


class Loop(Protocol):
    """What is told of the loop's events."""

    tap: Tap

    def loop_begins(self, loader: Any) -> None:
        """Model and optimizer are prepared; nothing has been trained."""
        ...

    def gradients_used(self) -> None:
        """The optimizer has stepped; the gradients are about to be dropped."""
        ...

    def step_ends(self) -> bool:
        """After a step; True: the loop has to stop."""
        ...


class Driver(TrainerCallback):  # type: ignore[misc]
    """Hands the Trainer's events on to the engine; last in the line of callbacks."""

    def __init__(self, engine: Loop) -> None:
        self._engine = engine

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The loop is about to begin."""
        self._engine.loop_begins(more["train_dataloader"])

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The loader is about to be drawn from."""
        self._engine.tap.epoch_begins()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Gradients are there, clipped."""
        self._engine.tap.before_optimizer()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The weights have moved."""
        self._engine.tap.after_optimizer()
        self._engine.gradients_used()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """A step is over: go on with the program."""
        if self._engine.step_ends():
            control.should_training_stop = True
