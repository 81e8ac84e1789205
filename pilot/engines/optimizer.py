"""Builds the optimizer from the ``optim`` section: any ``torch.optim`` class by its path."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from pilot.errors import ConfigError, Mistake
from pilot.mistakes import nearest

# Keys of the section that are not arguments of the optimizer.
_OURS = {"_target_", "learning_rate", "max_grad_norm", "beta1", "beta2"}
_SET_BY_PILOT = {
    "params": "the recipe's model has the parameters",
    "lr": "optim.learning_rate and the schedule set the rate of every step",
}


def optimizer_class(target: str) -> type[torch.optim.Optimizer]:
    """The class named by ``target``.

    Raises:
        ConfigError: no such module or class, or it is not an optimizer.
    """
    module_name, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        near = nearest(name, [n for n in dir(torch.optim) if n[:1].isupper()])
        remedy = f"did you mean 'torch.optim.{near}'?" if near else "give module.Class"
        raise _mistake("optim._target_", target, f"cannot be imported: {error}", remedy) from error
    if name == "LBFGS":
        rule = "needs a closure that evaluates the loss again; one step is one evaluation here"
        raise _mistake("optim._target_", target, rule, "choose a first-order optimizer")
    if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
        raise _mistake("optim._target_", target, "must be a torch optimizer", "see torch.optim")
    return found


def optimizer_arguments(optim: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments for the optimizer: all keys it knows, ``learning_rate`` as ``lr``.

    Raises:
        ConfigError: with every key that the optimizer does not take.
    """
    target = str(optim["_target_"])
    known = set(inspect.signature(optimizer_class(target)).parameters) - set(_SET_BY_PILOT)
    given = {k: v for k, v in optim.items() if k not in _OURS and v is not None}
    if given.get("weight_decay") == 0.0 and "weight_decay" not in known:
        del given["weight_decay"]  # the group's default, and what such a class does anyway
    mistakes = [
        Mistake(
            key=f"optim.{key}",
            value=repr(value),
            rule=_SET_BY_PILOT.get(key, f"{target} takes no argument {key!r}"),
            remedy=f"drop it: optim.{key}=null; it takes: {', '.join(sorted(known))}",
        )
        for key, value in given.items()
        if key not in known
    ]
    if mistakes:
        raise ConfigError(mistakes)
    arguments = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    return {"lr": float(optim["learning_rate"]), **arguments}


def build_optimizer(
    optim: Mapping[str, Any], parameters: Iterable[torch.nn.Parameter]
) -> torch.optim.Optimizer:
    """The optimizer over ``parameters``, one group.

    Raises:
        ConfigError: unknown class or arguments, or values that the class refuses.
    """
    cls = optimizer_class(str(optim["_target_"]))
    arguments = optimizer_arguments(optim)
    try:
        return cls(list(parameters), **arguments)
    except (TypeError, ValueError) as error:
        raise _mistake("optim", str(dict(optim)), str(error), f"see {cls.__name__}") from error


def _mistake(key: str, value: str, rule: str, remedy: str) -> ConfigError:
    return ConfigError([Mistake(key=key, value=repr(value), rule=rule, remedy=remedy)])
