"""The optimizer and the scheduler of a run: those of the ``optim`` section, or the recipe's own.

A recipe's own optimizer may have several groups with different rates. Each must be a multiple of
``optim.learning_rate`` and the first must equal it, so that an arm that changes the learning rate
changes every group alike; ``rate_mistakes`` finds out by building it twice.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pilot.config import Config
from pilot.engines import seeds
from pilot.engines.guard import ContractError
from pilot.engines.optimizer import build_optimizer
from pilot.errors import ConfigError, Mistake
from pilot.own_rates import OwnRates, plain_options
from pilot.schedule import TRAINER

_SAME = 1e-9  # relative: two ways to write one float
_COMPARED_STEPS = 20_000  # of a scheduler at two rates
_OWN_CHOICE = "optim._target_"


def has_own_optimizer(recipe: Any) -> bool:
    """Whether the recipe builds its optimizer."""
    return callable(getattr(recipe, "build_optimizer", None))


def has_own_scheduler(recipe: Any) -> bool:
    """Whether the recipe builds its learning-rate scheduler."""
    return callable(getattr(recipe, "build_scheduler", None))


def make_optimizer(
    recipe: Any, config: Config, model: torch.nn.Module, learning_rate: float | None = None
) -> torch.optim.Optimizer:
    """The optimizer of a run over what trains in ``model``.

    Args:
        recipe: what the user's ``build`` returned.
        config: the ``optim`` section chooses a class, or passes its keys on to the recipe.
        model: where it will be trained.
        learning_rate: in the place of ``optim.learning_rate``.

    Raises:
        ConfigError: the section and the recipe both choose an optimizer, or neither does.
        ContractError: the recipe returned something else.
    """
    optim = config.optim.model_dump(by_alias=True)
    optim["learning_rate"] = learning_rate or config.optim.learning_rate
    if mistakes := choice_mistakes(recipe, config):
        raise ConfigError(mistakes)
    if not has_own_optimizer(recipe):
        return build_optimizer(optim, [p for p in model.parameters() if p.requires_grad])
    section = {key: value for key, value in optim.items() if key != "_target_"}
    found = recipe.build_optimizer(model, section)
    if not isinstance(found, torch.optim.Optimizer):
        rule = "must return a torch.optim.Optimizer"
        raise ContractError("build_optimizer", f"a {type(found).__name__}", rule, "return it")
    if isinstance(found, torch.optim.LBFGS):
        rule = "must not need a closure: one step is one evaluation here"
        remedy = "choose a first-order optimizer"
        raise ContractError("build_optimizer", "torch.optim.LBFGS", rule, remedy)
    return found


def make_scheduler(recipe: Any, optimizer: torch.optim.Optimizer, num_steps: int) -> Any:
    """The recipe's own scheduler, stepped once per optimizer step; None: pilot's schedule.

    Raises:
        ContractError: it cannot be stepped like that.
    """
    if not has_own_scheduler(recipe):
        return None
    found = recipe.build_scheduler(optimizer, num_steps)
    kind, remedy = type(found).__name__, "return a torch.optim.lr_scheduler.LRScheduler"
    if isinstance(found, torch.optim.lr_scheduler.ReduceLROnPlateau):
        rule = "must not wait for a validation loss: its rates cannot be planned"
        raise ContractError("build_scheduler", kind, rule, remedy)
    if not all(callable(getattr(found, name, None)) for name in ("step", "state_dict")):
        rule = "must return a learning-rate scheduler"
        raise ContractError("build_scheduler", f"a {kind}", rule, remedy)
    if getattr(found, "optimizer", optimizer) is not optimizer:
        rule = "must schedule the optimizer that it is given"
        raise ContractError("build_scheduler", f"a {kind} of another one", rule, remedy)
    return found


def choice_mistakes(recipe: Any, config: Config) -> list[Mistake]:
    """Exactly one of configuration and recipe says what optimizer and schedule are."""
    return [*_schedule_choice(recipe, config), *_optimizer_choice(recipe, config)]


def _schedule_choice(recipe: Any, config: Config) -> list[Mistake]:
    if config.full_run.schedule != TRAINER or has_own_scheduler(recipe):
        return []
    rule = "takes the rates of the run's own scheduler, and the recipe has no build_scheduler"
    remedy = "define build_scheduler(optimizer, num_steps), or use constant, linear, cosine or wsd"
    return [Mistake(key="full_run.schedule", value=TRAINER, rule=rule, remedy=remedy)]


def _optimizer_choice(recipe: Any, config: Config) -> list[Mistake]:
    target, own = config.optim.target, has_own_optimizer(recipe)
    if (target is None) == own:
        return []
    if own:
        rule = "the recipe has build_optimizer: only one of the two can be in force"
        remedy = "choose optim=own (in a recipe's YAML: `- override /optim: own`), or remove the "
        remedy += "method"
    else:
        rule = "leaves the optimizer to the recipe, which has no build_optimizer(model, optim)"
        remedy = "define it, or choose optim=adamw"
    return [Mistake(key=_OWN_CHOICE, value=str(target or "null"), rule=rule, remedy=remedy)]


def group_rates(optimizer: torch.optim.Optimizer) -> list[float]:
    """The rate of each group before any step: what a scheduler multiplies, where there is one."""
    groups = optimizer.param_groups
    return [float(group.get("initial_lr", group["lr"])) for group in groups]


def planned_rates(
    recipe: Any,
    config: Config,
    model: torch.nn.Module,
    num_steps: int,
    *,
    first_steps: int | None = None,
    scale: float = 1.0,
) -> npt.NDArray[np.float64]:
    """The rates that the recipe's own scheduler gives every group at every step of the full run.

    Measured with a twin of the optimizer that never steps; the model and the random states are
    left as they were.

    Args:
        recipe: what the user's ``build`` returned; it has ``build_scheduler``.
        config: of the run.
        model: what the optimizer is built for.
        num_steps: optimizer steps of the full run, which the scheduler is told.
        first_steps: only so many steps are measured; None: all.
        scale: a factor on ``optim.learning_rate``.

    Returns:
        fp64, shape [groups, steps]; row 0 is what records call the learning rate.
    """
    state = seeds.random_state()
    try:
        optimizer = make_optimizer(recipe, config, model, config.optim.learning_rate * scale)
        scheduler = make_scheduler(recipe, optimizer, num_steps)
        measured = num_steps if first_steps is None else min(num_steps + 1, first_steps)
        rates = np.empty((len(optimizer.param_groups), measured))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch: the scheduler steps before the optimizer
            for step in range(measured):
                rates[:, step] = [float(group["lr"]) for group in optimizer.param_groups]
                if step + 1 < measured:
                    scheduler.step()
        return rates
    finally:
        seeds.set_random_state(state)


def rate_mistakes(
    recipe: Any, config: Config, model: torch.nn.Module, num_steps: int
) -> list[Mistake]:
    """Groups whose rates do not follow ``optim.learning_rate``: an arm would not change them."""
    if not (has_own_optimizer(recipe) or has_own_scheduler(recipe)):
        return []
    state = seeds.random_state()
    rate, mistakes = config.optim.learning_rate, []
    try:
        one, two = (
            group_rates(make_optimizer(recipe, config, model, rate * k)) for k in (1.0, 2.0)
        )
        if has_own_optimizer(recipe):
            mistakes = _group_mistakes(one, two, rate)
        if has_own_scheduler(recipe) and not mistakes:
            mistakes = _schedule_mistakes(
                *(
                    planned_rates(
                        recipe, config, model, num_steps, first_steps=_COMPARED_STEPS, scale=scale
                    )
                    for scale in (1.0, 2.0)
                )
            )
        return mistakes
    finally:
        seeds.set_random_state(state)


def _group_mistakes(one: Sequence[float], two: Sequence[float], rate: float) -> list[Mistake]:
    key, remedy = "build_optimizer", "make it a multiple: lr=0.1 * optim['learning_rate']"
    mistakes = []
    if not _equal(one[0], rate):
        rule = f"the first group's rate must be optim.learning_rate = {rate:g}"
        mistakes.append(
            Mistake(key=key, value=f"{one[0]:g}", rule=rule, remedy="lr=optim['learning_rate']")
        )
    for index, (a, b) in enumerate(zip(one, two, strict=True)):
        if not _equal(2.0 * a, b) and (index or not mistakes):
            rule = f"the rate of group {index} must follow optim.learning_rate, as arms change it"
            mistakes.append(Mistake(key=key, value=f"{a:g}", rule=rule, remedy=remedy))
    return mistakes


def _schedule_mistakes(one: npt.NDArray[np.float64], two: npt.NDArray[np.float64]) -> list[Mistake]:
    wrong = np.argwhere(~np.isclose(2.0 * one, two, rtol=_SAME, atol=0.0))
    rates = [
        ("rates must be finite and at least 0", ~(np.isfinite(one) & (one >= 0.0)).all()),
        ("must give a rate above 0 at some step", not (one[0] > 0.0).any()),
    ]
    remedy = "multiply the rates that the optimizer's groups have, as LambdaLR does"
    mistakes = [
        Mistake(key="build_scheduler", value="", rule=rule, remedy=remedy)
        for rule, broken in rates
        if broken
    ]
    if len(wrong) and not mistakes:
        group, step = (int(place) for place in wrong[0])
        rule = f"the rate of group {group} at step {step + 1} must follow optim.learning_rate"
        value = f"{one[group, step]:g}"
        mistakes.append(Mistake(key="build_scheduler", value=value, rule=rule, remedy=remedy))
    return mistakes


def own_rates(
    recipe: Any, config: Config, model: torch.nn.Module, num_steps: int
) -> OwnRates | None:
    """What the recipe's own scheduler plans for every group; None: pilot sets the rates.

    One step more than the run has is looked at: the rate that would follow its end.
    """
    if not has_own_scheduler(recipe):
        return None
    rates = planned_rates(recipe, config, model, num_steps, first_steps=num_steps + 1)
    options = plain_options(make_optimizer(recipe, config, model).param_groups)
    return OwnRates(first_step=1, rates=rates, options=options)


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= _SAME * max(abs(one), abs(other))
