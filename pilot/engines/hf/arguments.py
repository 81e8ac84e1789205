"""Our keys and the training arguments of a Trainer: what an arm sets, and whether the two agree."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from pilot.config import Config
from pilot.gates import Gates
from pilot.schedule import full_schedule

# Key of ours -> the training argument with the same meaning.
ARGUMENTS: Mapping[str, str] = {
    "optim.learning_rate": "learning_rate",
    "optim.max_grad_norm": "max_grad_norm",
    "optim.weight_decay": "weight_decay",
    "batch.micro_batch_size": "per_device_train_batch_size",
    "batch.grad_accum_steps": "gradient_accumulation_steps",
    "pilot.seed": "seed",
}
_SAME = 1e-12  # relative: two ways to write one float


def changes_of(config: Config) -> dict[str, Any]:
    """The training arguments that ``config`` stands for; clipping off is 0 for a Trainer."""
    tree = config.model_dump(by_alias=True)
    found = {}
    for key, name in ARGUMENTS.items():
        section, _, leaf = key.partition(".")
        value = tree[section][leaf]
        found[name] = 0.0 if name == "max_grad_norm" and value is None else value
    return found


# The scheduler of a Trainer -> ours with the same formula.
_SCHEDULES: Mapping[str, str] = {
    "linear": "linear",
    "cosine": "cosine",
    "constant": "constant",
    "constant_with_warmup": "constant",
    "warmup_stable_decay": "wsd",
}


def tree_of(trainer: Any, name: str, max_steps: int) -> dict[str, Any]:
    """A whole configuration that describes ``trainer``: pilot's defaults, the Trainer's numbers.

    A scheduler without a formula of ours is taken as constant; ``disagreements`` says so.
    """
    args = trainer.args
    kind = _SCHEDULES.get(str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)))
    warmup = 0 if str(args.lr_scheduler_type) == "constant" else args.get_warmup_steps(max_steps)
    return {
        "recipe": {"name": name, "trainer": type(trainer).__name__, "objective": "lm"},
        "full_run": {
            "schedule_steps": max_steps,
            "warmup_steps": min(int(warmup), max_steps),
            "schedule": kind or "constant",
        },
        "optim": {
            "_target_": str(getattr(args.optim, "value", args.optim)),
            "learning_rate": float(args.learning_rate),
            "max_grad_norm": float(args.max_grad_norm) or None,
            "weight_decay": float(args.weight_decay),
        },
        "batch": {
            "micro_batch_size": int(args.train_batch_size),
            "grad_accum_steps": int(args.gradient_accumulation_steps),
        },
        "precision": precision_of(args),
        "engine": {"name": "transformers"},
        "pilot": {"seed": int(args.seed), "data": "prefix", "min_peak_steps": max_steps},
        "arms": {"learning_rate_scales": [], "max_grad_norm": None, "num_replicas": 0},
        "gates": {gate: {} for gate in Gates.model_fields if gate not in ("strict", "waive")},
        "checks": {},
        "tracking": {},
        "launcher": {"num_processes": max(1, int(args.world_size))},
        "out_dir": "out",
    }


def disagreements(
    trainer: Any, own: Mapping[str, Any], config: Config, num_rows: int, max_steps: int
) -> list[str]:
    """In what the user's Trainer and the configuration differ, one line each.

    Args:
        trainer: the Trainer.
        own: the user's values of arguments that were set over.
        config: the baseline's configuration.
        num_rows: training rows.
        max_steps: the steps of the Trainer's full run.
    """
    lines = []
    for key, name in ARGUMENTS.items():
        wanted, theirs = changes_of(config)[name], own.get(name, getattr(trainer.args, name))
        if not _equal(wanted, theirs):
            lines.append(f"{key} is {wanted}, the Trainer's {name} is {theirs}")
    precision = precision_of(trainer.args)
    if config.precision != precision:
        lines.append(f"precision is {config.precision}, the Trainer's is {precision}")
    schedule = full_schedule(config, num_rows)
    if schedule.schedule_steps != max_steps:
        lines.append(
            f"full_run has {schedule.schedule_steps} steps, the Trainer trains {max_steps}"
        )
        return lines
    for step, rate in enumerate(planned_rates(trainer, max_steps), start=1):
        if not _equal(rate, schedule.learning_rate_at(step)):
            lines.append(
                f"the learning rate of step {step} is {schedule.learning_rate_at(step):.9g} by "
                f"full_run, {rate:.9g} by the Trainer's scheduler"
            )
            break
    return lines


def precision_of(args: Any) -> str:
    """The precision that a Trainer computes in.

    By ``bf16`` and ``fp16``, or by the variable ``ACCELERATE_MIXED_PRECISION``, which its arguments
    read where neither is set.
    """
    mixed = str(getattr(args, "mixed_precision", "no") or "no")
    return "fp32" if mixed == "no" else mixed


def planned_rates(trainer: Any, max_steps: int) -> Sequence[float]:
    """The learning rates of the Trainer's own scheduler, stepped once per optimizer step.

    Empty where the user gave the scheduler: it is theirs, with its own state.
    """
    import torch

    if trainer.lr_scheduler is not None:
        return ()
    dummy = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=trainer.args.learning_rate)
    twin = copy.copy(trainer)
    twin.optimizer, twin.lr_scheduler = dummy, None
    scheduler = twin.create_scheduler(num_training_steps=max_steps, optimizer=dummy)
    rates = []
    for _ in range(max_steps):
        rates.append(float(dummy.param_groups[0]["lr"]))
        dummy.step()
        scheduler.step()
    return rates


def _equal(one: Any, other: Any) -> bool:
    numbers = all(isinstance(v, (int, float)) for v in (one, other))
    if numbers and max(abs(one), abs(other)) > 0:
        return bool(abs(one - other) <= _SAME * max(abs(one), abs(other)))
    return bool(one == other)
