"""The rates that one optimizer step uses: the user's own, or scaled or forced for this step alone.

Whatever sets the rates (a scheduler of any kind, a callback) goes on from its own values: they are
put back as soon as the optimizer has stepped. So an arm's rate is the baseline's times one factor
at every step, and a branch leaves the schedule as it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch


class UsedRates:
    """Sets and reads the rates of one optimizer step at a time.

    ``scales`` has a factor for each parameter group; empty: the rates stay the user's.
    """

    def __init__(self) -> None:
        self.scales: tuple[float, ...] = ()
        self._forced: float | None = None
        self._used: list[float] = []
        self._own: list[Any] = []
        self._handles: list[Any] = []

    def begin(self, optimizer: torch.optim.Optimizer, forced: float | None) -> None:
        """The optimizer is about to step. ``forced``: the rate that its first group gets.

        Other groups then keep their ratio to the first one.
        """
        self.end()
        self._forced, self._used = forced, self._wanted(optimizer)
        if not hasattr(optimizer, "_optimizer_step_pre_hooks"):  # a class of the user's own
            self._set(optimizer, (), {})
            self._handles = [_PutBack(self, optimizer)]
            return
        # What is set last, by whatever callback, is what counts: look again inside `step`.
        self._handles = [
            optimizer.register_step_pre_hook(self._set),
            optimizer.register_step_post_hook(self._put_back),
        ]

    def end(self) -> float:
        """The optimizer has stepped, or was skipped; returns the rate of its first group."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        return self._used[0] if self._used else math.nan

    def _wanted(self, optimizer: torch.optim.Optimizer) -> list[float]:
        groups = optimizer.param_groups
        own = self._scaled([number(group["lr"]) for group in groups])
        if self._forced is None:
            return own
        peaks = self._scaled([number(group.get("initial_lr", group["lr"])) for group in groups])
        base = own if own[0] > 0.0 else peaks  # before a warm-up and behind an end all are 0
        ratios = [rate / base[0] if base[0] > 0.0 else 1.0 for rate in base]
        return [self._forced, *(self._forced * ratio for ratio in ratios[1:])]

    def _scaled(self, rates: Sequence[float]) -> list[float]:
        if not self.scales:
            return list(rates)
        return [rate * scale for rate, scale in zip(rates, self.scales, strict=True)]

    def _set(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._used = self._wanted(optimizer)
        self._own = [group["lr"] for group in optimizer.param_groups]
        for group, own, rate in zip(optimizer.param_groups, self._own, self._used, strict=True):
            if rate != number(own) and not math.isnan(rate):
                group["lr"] = torch.full_like(own, rate) if torch.is_tensor(own) else rate

    def _put_back(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        for group, own in zip(optimizer.param_groups, self._own, strict=True):
            group["lr"] = own


class _PutBack:
    """Puts the rates back where ``step`` cannot be hooked."""

    def __init__(self, rates: UsedRates, optimizer: Any) -> None:
        self._rates, self._optimizer = rates, optimizer

    def remove(self) -> None:
        """The step is over."""
        self._rates._put_back(self._optimizer, (), {})


def number(rate: Any) -> float:
    """A rate as a float; NaN where an optimizer finds its own step (``lr`` None)."""
    return math.nan if rate is None else float(rate)
