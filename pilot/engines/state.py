"""Copies of a run's state that share no memory with the model or the optimizer."""

from __future__ import annotations

from typing import Any

import torch


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
