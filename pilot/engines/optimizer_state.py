"""Puts the moments of a saved optimizer into the one that the configuration builds.

Only the state is taken (moments, step counts); rates, decay and other settings stay the built ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from pilot.engines.native import NativeEngine

_SETTINGS = (
    "weight_decay",
    "betas",
    "eps",
    "momentum",
    "nesterov",
    "amsgrad",
    "alpha",
    "dampening",
)


def load_moments(
    engine: NativeEngine, state: Any, *, by_trainer: bool = False
) -> tuple[str, list[str]]:
    """Load a ``state_dict`` of an optimizer.

    Args:
        engine: its optimizer is empty.
        state: what was saved; a list of one, or a mapping of one, stands for that one.
        by_trainer: whether a Trainer saved it, which puts decayed weights before the others.

    Returns:
        Why it was not loaded (empty: it was), and settings in which it differs, as text.
    """
    while isinstance(state, (list, tuple)) and len(state) == 1:
        state = state[0]
    if isinstance(state, Mapping) and "state" not in state and len(state) == 1:
        state = next(iter(state.values()))
    if not (isinstance(state, Mapping) and {"state", "param_groups"} <= set(state)):
        return "its optimizer state is no state_dict of one torch optimizer", []
    saved = [int(i) for group in state["param_groups"] for i in group["params"]]
    own = [p for group in engine.optimizer.param_groups for p in group["params"]]
    if len(saved) != len(own):
        return f"it is of {len(saved)} tensors, the optimizer has {len(own)}", []
    first = len(state["param_groups"][0]["params"])
    order = _trainer_order(engine.model, own, first) if by_trainer else own
    entries = [state["state"].get(index, {}) for index in saved]
    if not _shapes_fit(entries, order):
        return "its tensors have other shapes than the weights", []
    if problem := _other_kind(engine.optimizer, entries, order):
        return problem, []
    _place(engine.optimizer, dict(zip(order, entries, strict=True)))
    return "", _other_settings(engine.optimizer, state["param_groups"])


def _place(
    optimizer: torch.optim.Optimizer, entries: Mapping[torch.Tensor, Mapping[str, Any]]
) -> None:
    """Through ``load_state_dict``, which casts and moves; with the optimizer's own groups."""
    own = optimizer.state_dict()
    flat = [p for group in optimizer.param_groups for p in group["params"]]
    state = {i: dict(entries[p]) for i, p in enumerate(flat) if entries[p]}
    optimizer.load_state_dict({"state": state, "param_groups": own["param_groups"]})


def _shapes_fit(entries: Sequence[Mapping[str, Any]], params: Sequence[torch.Tensor]) -> bool:
    """Whether every moment that is as large as some weight is as large as its own."""
    for entry, param in zip(entries, params, strict=True):
        for value in entry.values():
            whole = isinstance(value, torch.Tensor) and value.dim() == param.dim() and value.dim()
            factored = whole and (value.shape[:-1] == param.shape[:-1] or 1 in value.shape)
            if whole and value.shape != param.shape and not factored:
                return False
            if isinstance(value, torch.Tensor) and value.dim() and value.dim() != param.dim():
                return False
    return True


def _trainer_order(
    model: torch.nn.Module, own: list[torch.Tensor], num_first: int
) -> list[torch.Tensor]:
    """The weights in the order of a Trainer's groups: decayed ones first, then the others.

    ``num_first`` are the tensors of the first group; where that is another number, the optimizer
    was not made by the Trainer, and the model's own order holds.
    """
    try:
        from transformers import Trainer

        names = set(Trainer.get_decay_parameter_names(None, model))
    except Exception:  # another version, or none
        return own
    decayed = {id(p) for n, p in model.named_parameters() if n in names}
    first = [p for p in own if id(p) in decayed]
    return [*first, *(p for p in own if id(p) not in decayed)] if len(first) == num_first else own


def _other_kind(
    optimizer: torch.optim.Optimizer,
    entries: Sequence[Mapping[str, Any]],
    params: Sequence[torch.Tensor],
) -> str:
    """Whether another class of optimizer saved it, seen by what one step of this one keeps."""
    by_dim: dict[int, set[str]] = {}
    for entry, param in zip(entries, params, strict=True):
        if not entry:
            continue
        needed = by_dim.setdefault(param.dim(), _keeps(optimizer, param.dim()))
        if lacking := sorted(needed - set(entry)):
            has = ", ".join(sorted(entry)) or "nothing"
            kind = type(optimizer).__name__
            return f"{kind} keeps {', '.join(lacking)}, the checkpoint has {has}"
        if not needed:
            kind, has = type(optimizer).__name__, ", ".join(sorted(entry))
            return f"{kind} keeps no state, the checkpoint has {has}"
    return "" if any(entries) or not _keeps(optimizer, 1) else "it is empty"


def _keeps(optimizer: torch.optim.Optimizer, dim: int) -> set[str]:
    """What the optimizer remembers of a tensor with ``dim`` dimensions after one step."""
    options = {
        k: v
        for k, v in optimizer.param_groups[0].items()
        if k not in ("params", "foreach", "fused", "initial_lr")
    }
    dummy = torch.nn.Parameter(torch.ones((2,) * dim))
    dummy.grad = torch.ones_like(dummy)
    kind: Any = type(optimizer)
    try:
        twin: torch.optim.Optimizer = kind([dummy], lr=options["lr"] or 1e-3)
        twin.param_groups[0].update(options)
        twin.step()
    except Exception:  # one that needs more than a gradient: its state is taken as it is
        return set()
    kept = twin.state[dummy]
    return {key for key, value in kept.items() if value is not None}


def _other_settings(
    optimizer: torch.optim.Optimizer, groups: Sequence[Mapping[str, Any]]
) -> list[str]:
    built = optimizer.param_groups
    found = []
    for index, saved in enumerate(groups):
        own = built[min(index, len(built) - 1)]
        for key in _SETTINGS:
            if key in saved and key in own and _plain(saved[key]) != _plain(own[key]):
                found.append(f"{key} {saved[key]}")
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value
