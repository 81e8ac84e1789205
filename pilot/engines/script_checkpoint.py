"""What lies where in a file that a training script saved by ``torch.save``: by its usual names."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pilot.user_checkpoint import wrong

_MODEL = ("model", "model_state_dict", "state_dict", "module", "model_state", "net", "weights")
_OPTIMIZER = (
    "optimizer",
    "optimizer_state_dict",
    "optimizer_states",
    "optimizer_state",
    "optim",
    "optim_state_dict",
    "last_optimizer_state",
)
STEPS = ("step", "global_step", "iteration", "iter_num", "update", "num_updates", "iter", "steps")
_SCALER = ("scaler", "grad_scaler", "scaler_state_dict")


def split(path: Path, content: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The weights, and what lies beside them.

    Raises:
        ConfigError: the file at ``path`` holds no weights that are known.
    """
    content = _unwrapped(content)
    if isinstance(content, Mapping):
        for key in _MODEL:
            if isinstance(content.get(key), Mapping) and _has_tensors(content[key]):
                return content[key], content
        if content and all(isinstance(value, torch.Tensor) for value in content.values()):
            return content, {}
        keys = ", ".join(str(key) for key in list(content)[:8])
        rule = f"has no weights that are known: looked for {', '.join(_MODEL)}; it has {keys}"
    else:
        rule = f"must hold a dictionary, it holds a {type(content).__name__}"
    raise wrong(path, rule, "define load_checkpoint(path, model, optimizer) in the recipe's module")


def optimizer_state_in(extra: Mapping[str, Any]) -> Any:
    """The optimizer's saved state; None: there is none."""
    return next((extra[key] for key in _OPTIMIZER if extra.get(key)), None)


def scaler_state_in(extra: Mapping[str, Any]) -> dict[str, Any] | None:
    """The loss scaler's saved state; None: there is none."""
    return next((extra[key] for key in _SCALER if isinstance(extra.get(key), dict)), None)


def step_in(extra: Mapping[str, Any]) -> int | None:
    """The optimizer steps that had been done; None: the file does not say."""
    for key in STEPS:
        if (found := whole_number(extra.get(key))) is not None:
            return found
    history = extra.get("optimizer_history")
    last = history[-1] if isinstance(history, list) and history else None
    return whole_number(last.get("num_updates")) if isinstance(last, Mapping) else None


def whole_number(value: Any) -> int | None:
    """A count of steps from an integer of any kind (Python, NumPy, a tensor); None: it is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, torch.Tensor):
        value = value.item() if value.numel() == 1 else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        found = operator.index(value)
    except TypeError:
        return None
    return found if found >= 0 else None


def _unwrapped(content: Any) -> Any:
    """The mapping that holds the model: some trainers put all of it under ``state``."""
    inner = content.get("state") if isinstance(content, Mapping) else None
    has_model = isinstance(inner, Mapping) and any(key in inner for key in _MODEL)
    return inner if has_model else content


def _has_tensors(values: Mapping[Any, Any]) -> bool:
    return any(isinstance(value, torch.Tensor) for value in values.values())
