"""A subclass that trains in a loop of its own cannot be watched: said at its first forward pass."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from pilot.engines.hf.tap import Tap
from pilot.errors import UsageError


class Begins(Protocol):
    """A loop that calls ``own_has_begun`` when the Trainer's own begins."""

    tap: Tap
    own_has_begun: Callable[[], None]


@contextlib.contextmanager
def only_in(loop: Begins) -> Iterator[None]:
    """Within: the model trains nowhere but in transformers' own loop.

    What looks for it is gone when that loop begins: a compiler never sees it.

    Raises:
        UsageError: a forward pass with gradients before that loop has begun.
    """
    trainer, model = loop.tap.trainer, loop.tap.model

    def look(module: torch.nn.Module, inputs: Any) -> None:
        if module.training and torch.is_grad_enabled():
            raise no_loop(trainer)

    hook = model.register_forward_pre_hook(look)
    loop.own_has_begun = hook.remove
    try:
        yield
    finally:
        hook.remove()


def no_loop(trainer: Any) -> UsageError:
    """What is said of a Trainer whose ``train`` never begins transformers' loop."""
    return UsageError(
        f"recipe.trainer: {type(trainer).__name__}.train() trains in a loop of its own; what pilot "
        "watches is the loop of transformers' Trainer\n"
        "    remedy: put what is special into training_step, compute_loss or get_train_dataloader, "
        "or describe the run as a recipe of your own (recipes/README.md)"
    )
