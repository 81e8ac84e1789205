"""Changes the rates of an optimizer that exists already, with the schedule that drives it."""

from __future__ import annotations

from typing import Any

import torch


def scale_rates(optimizer: torch.optim.Optimizer, scheduler: Any, factor: float) -> None:
    """Multiply the learning rate of every group, now and for every later step, by ``factor``.

    Args:
        optimizer: the optimizer, unwrapped; ``lr`` and ``initial_lr`` of each group are scaled.
        scheduler: what drives it (None: nothing does). ``base_lrs`` and the last rates are scaled,
            in schedulers inside it too; one of another kind goes on from the group's rate.
        factor: the new rate over the old one; 1 changes nothing.
    """
    if factor == 1.0:
        return
    for group in optimizer.param_groups:
        for key in ("lr", "initial_lr", "max_lr", "min_lr"):
            if key in group and group[key] is not None:
                group[key] = _times(group[key], factor)
    for inner in _all_schedulers(scheduler, set()):
        for name in ("base_lrs", "_last_lr", "max_lrs", "min_lrs", "default_min_lr", "eta_min"):
            if name in vars(inner):
                setattr(inner, name, _times(vars(inner)[name], factor))


def _times(value: Any, factor: float) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_times(item, factor) for item in value)
    if isinstance(value, torch.Tensor):
        return value * factor
    return value * factor if isinstance(value, (int, float)) else value


def _all_schedulers(scheduler: Any, seen: set[int]) -> list[Any]:
    """The scheduler under its wrappers, and those that it holds (``SequentialLR``)."""
    if scheduler is None or id(scheduler) in seen or not hasattr(scheduler, "__dict__"):
        return []
    seen.add(id(scheduler))
    found = [scheduler]
    for name in ("scheduler", "_schedulers", "after_scheduler"):
        inner = vars(scheduler).get(name)
        for one in inner if isinstance(inner, (list, tuple)) else [inner]:
            found += _all_schedulers(one, seen)
    return found
