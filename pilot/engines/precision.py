"""Precision of a run: the dtype of the weights, autocast, and the fp16 loss scaler."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch

from pilot.errors import ConfigError, Mistake

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def pick_device(name: str) -> torch.device:
    """``auto``: the first GPU when there is one, otherwise the CPU."""
    if name.startswith("cuda") and not torch.cuda.is_available():
        rule = "this installation of torch finds no GPU"
        mistake = Mistake(key="engine.device", value=name, rule=rule, remedy="engine.device=auto")
        raise ConfigError([mistake])
    if name != "auto":
        return torch.device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def weight_dtype(precision: str) -> torch.dtype:
    """The dtype of the weights: fp64 for ``fp64``, fp32 otherwise (autocast casts operations)."""
    return torch.float64 if precision == "fp64" else torch.float32


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Autocast for ``bf16`` and ``fp16``; nothing for ``fp32`` and ``fp64``."""
    if precision not in _AUTOCAST:
        return nullcontext()
    return torch.autocast(device.type, dtype=_AUTOCAST[precision])


def make_scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """The loss scaler; disabled (a no-op) unless the precision is ``fp16``."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


def to_device(
    batch: Mapping[str, torch.Tensor], device: torch.device, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Move a batch; floating-point inputs follow the weights' dtype."""
    return {
        key: value.to(device, dtype if value.is_floating_point() else None, non_blocking=True)
        for key, value in batch.items()
    }
