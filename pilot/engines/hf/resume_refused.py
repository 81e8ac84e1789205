"""What a Trainer cannot go on from, and what it would go on from in silence with other values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from pilot.engines.weight_files import listed, read_weights, tied_names
from pilot.errors import ConfigError, Mistake
from pilot.user_checkpoint import KEY, UserCheckpoint, sharded_optimizer, wrong

_SAME = 1e-9  # relative: two ways to write one float
Group = Mapping[str, Any]


def require_resumable(
    trainer: Any, model: torch.nn.Module, found: UserCheckpoint, step: int
) -> None:
    """Make sure that ``trainer`` can go on from the checkpoint behind ``step``.

    Args:
        trainer: the Trainer.
        model: its model, unwrapped.
        found: the checkpoint.
        step: the step after which the run goes on.

    Raises:
        ConfigError: it cannot, and why.
    """
    path = found.path
    for kind in ("deepspeed", "fsdp"):
        if getattr(trainer, f"is_{kind}_enabled", False):
            rule = f"cannot be started from under {kind}: its own loader needs all processes"
            raise wrong(path, rule, "pilot from the start, without recipe.resume_from")
    if found.step is None:
        raise wrong(path, "has no trainer_state.json: no Trainer resumes from it", "")
    if found.step != step:
        rule = f"was saved after step {found.step}, the pilot starts after step {step}"
        raise wrong(path, rule, "drop full_run.start_step")
    sharded = sharded_optimizer(found) or "optimizer.bin is FSDP's"
    if _would_look_for_another_optimizer(path):
        rule = f"its optimizer is sharded: {sharded}; one process cannot resume from it"
        raise wrong(path, rule, "resume with all processes, or remove it: fresh moments")
    is_peft = hasattr(model, "peft_config")
    if found.is_adapter and not is_peft:
        rule = f"holds an adapter alone ({found.weights[0].name}); the Trainer's model has none"
        raise wrong(path, rule, "return a model with that adapter (peft.get_peft_model)")


def require_weights(model: torch.nn.Module, found: UserCheckpoint, result: Any) -> list[str]:
    """Make sure that loading put every weight in place.

    Args:
        model: the Trainer's model.
        found: the checkpoint.
        result: what ``load_state_dict`` returned (names that are missing, and unexpected ones).

    Returns:
        What the checkpoint has beside them, as notes.

    Raises:
        ConfigError: weights are missing.
    """
    ignored = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    lost = [name for name in getattr(result, "missing_keys", ()) if name not in ignored]
    lost = [name for name in lost if name not in tied_names(model, lost)]
    extra = list(getattr(result, "unexpected_keys", ()))
    if lost:
        rule = f"its weights do not fit the model: {listed('missing', lost)}"
        also = f"; {listed('unknown to it', extra)}" if extra else ""
        raise wrong(found.path, rule + also, "build the model that was saved")
    return [f"the checkpoint has weights {listed('unknown to the model', extra)}"] if extra else []


def require_adapter(model: torch.nn.Module, found: UserCheckpoint) -> None:
    """Make sure that the file has all of the adapter: of tensors that lack, loading only warns.

    Raises:
        ConfigError: tensors are missing.
    """
    from peft import get_peft_model_state_dict

    saved = set(read_weights(found.weights))
    there = set(get_peft_model_state_dict(model))
    if lost := sorted(there - saved):
        rule = f"its adapter does not fit the model's: {listed('missing', lost)}"
        raise wrong(found.path, rule, "build the adapter that was saved")


def require_same_rates(found: UserCheckpoint, groups: Iterable[tuple[Group, Group]]) -> None:
    """The rate that goes on must be the one that the script and the configuration name.

    Args:
        found: the checkpoint.
        groups: the optimizer's parameter groups as they were loaded, and as they were built.

    Raises:
        ConfigError: a rate or a decay is another one.
    """
    lines = []
    for number, (group, built) in enumerate(groups):
        for key in ("initial_lr", "weight_decay"):
            if key in group and key in built and not is_equal(group[key], built[key]):
                name = "learning_rate" if key == "initial_lr" else key
                lines.append((number, name, group[key], built[key]))
    if lines:
        number, name, old, new = lines[0]
        raise ConfigError(
            [
                Mistake(
                    key=KEY,
                    value=str(found.path),
                    rule=f"its optimizer.pt goes on with {name} {old:g} (group {number}), the "
                    f"Trainer is built with {new:g}: a restored optimizer keeps the old one",
                    remedy=f"set {name} back to {old:g} in the script and in the configuration"
                    f"; the new value can be an arm: arms.add=[{{optim.{name}: {new:g}}}]",
                )
            ]
        )


def is_equal(one: Any, other: Any) -> bool:
    """Whether two settings of an optimizer are one, however they are written."""
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return float(one) == float(other)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(is_equal, one, other))
    numbers = all(isinstance(v, (int, float)) for v in (one, other))
    if numbers and max(abs(one), abs(other)) > 0:
        return bool(abs(one - other) <= _SAME * max(abs(one), abs(other)))
    return bool(one == other)


def _would_look_for_another_optimizer(path: Path) -> bool:
    """Whether a Trainer sees a sharded optimizer, and then fails: it reads ``optimizer.pt``."""
    names = {p.name for p in path.iterdir()}
    folders = any(p.is_dir() and "optimizer" in p.name for p in path.iterdir())
    there = "scheduler.pt" in names and "optimizer.pt" not in names
    return bool(there and ("optimizer.bin" in names or folders))
