"""Copies of a run's state that share no memory with the model or the optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from pilot.engines import seeds


def model_state(model: torch.nn.Module) -> dict[str, Any]:
    """``model`` (what is not frozen) and ``buffers`` of a model, by name; tensors are not copied.

    Frozen weights are left out: they are built again (LoRA: adapters alone).
    """
    named = model.named_parameters(remove_duplicate=False)  # a tied weight has two names
    frozen = {n for n, p in named if not p.requires_grad}
    weights = {k: v for k, v in model.state_dict().items() if k not in frozen}
    buffers = {n: b for n, b in model.named_buffers() if n not in weights}
    return {"model": weights, "buffers": buffers}


def load_model_state(model: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """Put back what ``model_state`` returned."""
    model.load_state_dict(state["model"], strict=False)
    for name, buffer in model.named_buffers():
        if name in state["buffers"]:
            buffer.copy_(state["buffers"][name])


@contextlib.contextmanager
def left_as_it_was(model: torch.nn.Module) -> Iterator[None]:
    """Put random states and buffers (running statistics) back afterwards."""
    state = seeds.random_state()
    buffers = {name: b.detach().clone() for name, b in model.named_buffers()}
    yield
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])
    seeds.set_random_state(state)


def copy_state(state: object) -> dict[str, Any]:
    """A deep copy: tensors are cloned where they are, containers rebuilt."""
    copied = _copy(state)
    assert isinstance(copied, dict)
    return copied


def _copy(item: object) -> object:
    if isinstance(item, torch.Tensor):
        return item.detach().clone()
    if isinstance(item, dict):
        return {key: _copy(inner) for key, inner in item.items()}
    if isinstance(item, list):
        return [_copy(inner) for inner in item]
    if isinstance(item, tuple):
        return tuple(_copy(inner) for inner in item)
    return item
