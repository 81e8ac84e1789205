"""Whether a user's Trainer can be piloted, and trains as the configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilot.config import Config
from pilot.engines.hf import sharded
from pilot.engines.hf.arguments import disagreements
from pilot.engines.hf.order import max_steps, num_train_rows
from pilot.engines.hf.rows import dispatches
from pilot.errors import ConfigError, Mistake, UsageError


def require_contract(trainer: Any, loader: Any, config: Config, own: Mapping[str, Any]) -> None:
    """The Trainer has rows, and trains as the configuration says.

    Args:
        trainer: the Trainer.
        loader: its training loader.
        config: the validated configuration.
        own: the user's values of training arguments that were set over.

    Raises:
        ConfigError: with everything in which Trainer and configuration differ.
        UsageError: it cannot be piloted as it is.
    """
    sharded.refuse(sharded.of_trainer(trainer))
    target = str(config.recipe["trainer"])
    _require_processes(trainer, loader, config, target)
    num_rows = num_train_rows(loader)
    if num_rows == 0:
        raise UsageError(
            f"{target}: its training set has no rows\n    remedy: check where it reads its data"
        )
    num_steps = max_steps(trainer, loader)
    lines = disagreements(trainer, own, config, num_rows or 0, num_steps)
    rule = "the configuration must describe the Trainer's run"
    mistakes = [
        Mistake(key="recipe.trainer", value=line, rule=rule, remedy="make the two agree")
        for line in lines
    ]
    if num_rows is None and config.full_run.schedule_steps is None:
        mistakes = [
            Mistake(
                key="full_run.epochs",
                value=f"{config.full_run.epochs:g}",
                rule="the training set is a stream: passes over it are no number of steps",
                remedy=f"set full_run.schedule_steps={num_steps}, and epochs to null",
            )
        ]
    if mistakes:
        raise ConfigError(mistakes)


def _require_processes(trainer: Any, loader: Any, config: Config, target: str) -> None:
    """The Trainer's processes are those that pilot started, and each draws its own rows."""
    num, found = config.launcher.num_processes, max(1, int(trainer.args.world_size))
    if found != num:
        raise UsageError(
            f"launcher.num_processes is {num}, the Trainer's processes are {found}\n"
            "    rule:   the processes that pilot starts train together\n"
            "    remedy: on a CPU set use_cpu=True in the Trainer's arguments, or export "
            "ACCELERATE_USE_CPU=true"
        )
    splits = bool(getattr(trainer.args.accelerator_config, "split_batches", False))
    if num > 1 and (splits or dispatches(loader)):
        name = "split_batches" if splits else "dispatch_batches"
        smaller = " and divide per_device_train_batch_size by the processes" if splits else ""
        raise UsageError(
            f"{target}: accelerator_config has {name}=True\n"
            "    rule:   with several processes each must draw its own rows, or nobody knows "
            "which of them it trains on\n"
            f"    remedy: set {name}=False{smaller}: the rows are the same"
        )
