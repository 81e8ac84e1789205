"""Sets the learning rates of an optimizer's groups, step by step.

Without a scheduler of the recipe every group gets the planned rate times its own share (its rate
over that of the first group, as the optimizer was built). With one the rates are the scheduler's;
only a forced step (a branch, a measurement) has another, and leaves the scheduler where it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from pilot.engines.state import copy_state


class GroupRates:
    """The rates of one optimizer.

    Args:
        optimizer: as it was built: its groups have their own peak rates.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        own = [float(group["lr"]) for group in optimizer.param_groups]
        self.peak = own[0]
        self._shares = [rate / own[0] if own[0] else 1.0 for rate in own]
        self._scheduler: Any = None
        self._kept: list[Any] | None = None

    def follow(self, scheduler: Any) -> None:
        """From here on the rates are the scheduler's (None: pilot's)."""
        self._scheduler = scheduler

    @property
    def has_scheduler(self) -> bool:
        """Whether the recipe's own scheduler sets the rates."""
        return self._scheduler is not None

    def begin(self, learning_rate: float, *, forced: bool = False) -> float:
        """Set the rates of a step; returns the first group's, which is used."""
        groups = self._optimizer.param_groups
        if self._scheduler is not None:
            if not forced:
                return float(groups[0]["lr"])
            self._kept = [group["lr"] for group in groups]
        for group, share in zip(groups, self._shares, strict=True):
            group["lr"] = learning_rate * share
        return learning_rate

    def end(self) -> None:
        """The optimizer has stepped."""
        if self._scheduler is None:
            return
        kept, self._kept = self._kept, None
        if kept is None:
            self._scheduler.step()
            return
        for group, rate in zip(self._optimizer.param_groups, kept, strict=True):
            group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        """The scheduler's state without functions: the recipe builds those again."""
        return {} if self._scheduler is None else dict(_plain(self._scheduler.state_dict()))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what ``state_dict`` returned."""
        self._kept = None
        if self._scheduler is None or not state:
            return
        values = copy_state(dict(state))
        for name, value in values.items():
            current = getattr(self._scheduler, name, None)
            if isinstance(current, Counter):
                values[name] = Counter(value)
        self._scheduler.load_state_dict(values)


def _plain(value: Any) -> Any:
    """Numbers, texts, tensors and containers of them; what is none of these is left out."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items() if _is_plain(inner)}
    if isinstance(value, (list, tuple)):
        kept = [_plain(inner) if _is_plain(inner) else None for inner in value]
        return tuple(kept) if isinstance(value, tuple) else kept
    return value.item() if isinstance(value, np.generic) else value


def _is_plain(value: Any) -> bool:
    kinds = (bool, int, float, str, list, tuple, Mapping, torch.Tensor, np.generic)
    return value is None or isinstance(value, kinds)
