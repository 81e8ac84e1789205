"""A copy of a user's scheduler on an optimizer of its own: it can be stepped, and nothing moves."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from pilot.engines.hf.used_rates import number

_BY_METRICS = ("ReduceLROnPlateau", "GreedyLR")


class TwinOptimizer(torch.optim.Optimizer):
    """Parameter groups like another optimizer's, over parameters of its own; never steps.

    Args:
        groups: the other optimizer's groups.
        defaults: its defaults, which some schedulers ask for.
    """

    step_was_skipped = False  # what accelerate's wrapper of a scheduler asks for

    def __init__(self, groups: Sequence[dict[str, Any]], defaults: dict[str, Any]) -> None:
        own = []
        for group in groups:
            values = {k: copy.deepcopy(v) for k, v in group.items() if k != "params"}
            values["params"] = [torch.nn.Parameter(torch.zeros(1))]
            own.append(values)
        super().__init__(own, dict(defaults))

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Do nothing."""

    @property
    def rates(self) -> list[float]:
        """The rate of every group."""
        return [number(group["lr"]) for group in self.param_groups]


def twin_scheduler(trainer: Any, scheduler: Any, optimizer: Any) -> tuple[Any, TwinOptimizer]:
    """A copy of ``scheduler`` on a twin of ``optimizer``; the Trainer's parts stay."""
    dummy = twin_optimizer(optimizer)
    memo: dict[int, Any] = {id(value): value for value in (trainer, *vars(trainer).values())}
    own = list(parts(scheduler))
    for item in own:
        memo.pop(id(item), None)
    wrapped = [*chain(trainer.optimizer, ("optimizer",)), optimizer]
    wrapped.extend(
        x for item in own for x in chain(getattr(item, "optimizer", None), ("optimizer",))
    )
    memo.update({id(item): dummy for item in wrapped if item is not None})
    twin = copy.deepcopy(scheduler, memo)
    copies: dict[int, Any] = {}
    for item in parts(twin):
        functions = getattr(item, "lr_lambdas", None)
        if isinstance(functions, list):
            functions[:] = [_own_closure(f, copies, memo) for f in functions]
    return twin, dummy


def twin_optimizer(optimizer: Any) -> TwinOptimizer:
    """An optimizer with the same groups and defaults."""
    return TwinOptimizer(optimizer.param_groups, getattr(optimizer, "defaults", {}))


def chain(item: Any, names: Sequence[str]) -> list[Any]:
    """``item`` and what it wraps, outermost first."""
    found: list[Any] = []
    while item is not None and not any(item is other for other in found):
        found.append(item)
        item = next((getattr(item, name) for name in names if hasattr(item, name)), None)
    return found


def innermost(scheduler: Any) -> Any:
    """The scheduler under its wrappers."""
    return chain(scheduler, ("scheduler",))[-1] if scheduler is not None else None


def parts(scheduler: Any) -> Iterator[Any]:
    """A scheduler and those that it consists of (``SequentialLR``, ``ChainedScheduler``)."""
    for item in chain(scheduler, ("scheduler",)):
        yield item
        for part in getattr(item, "_schedulers", None) or ():
            yield from parts(part)


def reacts_to_metrics(scheduler: Any) -> bool:
    """Whether it wants a metric at each step: then nobody knows its rates before the run."""
    return any(
        cls.__name__ in _BY_METRICS for part in parts(scheduler) for cls in type(part).__mro__
    )


def _own_closure(function: Any, copies: dict[int, Any], memo: dict[int, Any]) -> Any:
    """A function with copies of what it closes over: a counter in it is the user's, not moved.

    ``copies`` are the functions and cells so far: what two functions share stays shared.
    """
    if id(function) in copies:
        return copies[id(function)]
    if not isinstance(function, types.FunctionType) or not function.__closure__:
        return function
    cells = []
    for cell in function.__closure__:
        if id(cell) not in copies:
            try:
                copies[id(cell)] = types.CellType(copy.deepcopy(cell.cell_contents, memo))
            except Exception:  # an empty cell, or nothing that can be copied
                copies[id(cell)] = cell
        cells.append(copies[id(cell)])
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__,
        tuple(cells),
    )  # fmt: skip
    made.__kwdefaults__ = function.__kwdefaults__
    copies[id(function)] = made
    return made
