"""Our keys and the training arguments of a Trainer: what is set over, and whether the two agree.

A Trainer keeps every argument that the configuration does not change: ``engine.answers`` is what it
said about itself, and only what differs from that is set. One leaf of the configuration is one
training argument, so an arm changes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilot.arms.specs import node_at
from pilot.config import Config
from pilot.engines.hf.answers import objective_of, precision_of, settings_of, warmup_of
from pilot.engines.hf.keys import (
    ANSWERED,
    ARGUMENTS,
    LENGTH,
    SHAPE,
    WARMUP,
    changed_keys,
    is_answer,
    is_same,
)
from pilot.engines.hf.rates import planned_rates
from pilot.gates import Gates
from pilot.schedule import TRAINER, full_schedule


def changes_of(config: Config) -> dict[str, Any]:
    """The training arguments to set over the user's: what ``config`` changes, and no other.

    A Trainer that was not asked gets the six plain ones of ``ARGUMENTS``.
    """
    tree = config.model_dump(by_alias=True)
    named = dict(config.recipe.get("arguments") or {})
    if config.engine.answers is None:
        return {**named, **{name: _value(name, node_at(tree, k)) for k, name in ARGUMENTS.items()}}
    changed = set(changed_keys(tree))
    plain = {ANSWERED[key]: key for key in ANSWERED if key in changed}
    found = {name: _value(name, node_at(tree, key)) for name, key in plain.items()}
    if "seed" in found:  # the order of the rows stays as it is
        found["data_seed"] = config.pilot.data_seed
    if "batch.micro_batch_size" in changed:
        scale = int(config.engine.answers.get("num_devices") or 1)
        found["per_device_train_batch_size"] = config.batch.micro_batch_size // scale
    if "precision" in changed:
        found |= {name: config.precision == name for name in ("bf16", "fp16")}
    return {**named, **found, **_run_changes(config, changed)}


def _run_changes(config: Config, changed: set[str]) -> dict[str, Any]:
    """Length, warm-up and schedule."""
    run, found = config.full_run, dict[str, Any]()
    if changed & set(LENGTH):
        if run.epochs is None:
            found["max_steps"] = run.schedule_steps
        else:
            by_steps = (config.engine.answers or {})["full_run"].get("schedule_steps") is not None
            found |= {"num_train_epochs": run.epochs, **({"max_steps": -1} if by_steps else {})}
    if changed & set(WARMUP):
        frac = run.warmup_frac
        found |= {"warmup_steps": run.warmup_steps or 0} if frac is None else {"warmup_ratio": frac}
    if _changes_shape(config, changed):
        found |= _scheduler(config)
    return found


def _changes_shape(config: Config, changed: set[str]) -> bool:
    if config.full_run.schedule == TRAINER:
        return False  # whatever the Trainer's own scheduler makes of it
    own = str((config.engine.answers or {}).get("lr_scheduler_type"))
    starts_warm = own == "constant" and bool(changed & set(WARMUP))
    longer = own == "warmup_stable_decay" and bool(changed & set(LENGTH))
    return bool(changed & set(SHAPE)) or starts_warm or longer


def _scheduler(config: Config) -> dict[str, Any]:
    """The scheduler of a Trainer with the formula of ``full_run``."""
    schedule = full_schedule(config, 0)
    floor, kind = schedule.min_learning_rate_frac, schedule.kind
    kwargs: dict[str, Any] = {}
    if kind == "constant":
        kind = "constant_with_warmup" if schedule.warmup_steps else "constant"
    elif kind == "linear" and floor:
        kind, kwargs = "polynomial", {"power": 1.0, "lr_end": floor * schedule.learning_rate}
    elif kind == "cosine" and floor:
        kind, kwargs = "cosine_with_min_lr", {"min_lr_rate": floor}
    elif kind == "wsd":
        steps = schedule.schedule_steps
        longest = max(1, steps - schedule.warmup_steps)
        num_decay = min(max(1, round(schedule.decay_frac * steps)), longest)
        kwargs = {"num_decay_steps": num_decay, "min_lr_ratio": floor, "decay_type": "linear"}
        kind = "warmup_stable_decay"
    answers = config.engine.answers or {}
    wanted = {"lr_scheduler_type": kind, "lr_scheduler_kwargs": kwargs}
    return {name: value for name, value in wanted.items() if value != answers.get(name)}


def _value(name: str, value: Any) -> Any:
    """A value of ours as the argument has it: clipping off is 0."""
    return 0.0 if name == "max_grad_norm" and value is None else value


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

    A scheduler without a formula of ours has the rates that are measured on it.
    """
    args, found = trainer.args, settings_of(trainer)
    kind = _SCHEDULES.get(str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)))
    return {
        "recipe": {
            "name": name,
            "trainer": type(trainer).__name__,
            "objective": objective_of(trainer),
        },
        "full_run": {
            "schedule_steps": max_steps,
            "warmup_steps": min(warmup_of(args, max_steps), max_steps),
            "schedule": kind or TRAINER,
        },
        "optim": found["optim"],
        "batch": found["batch"],
        "precision": found["precision"],
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
    """In what the Trainer, as it was built, and the configuration differ, one line each.

    Args:
        trainer: the Trainer, with what the configuration changes set over the user's arguments.
        own: the user's values of arguments that were set over; what a Trainer that was not asked
            is compared by.
        config: the baseline's configuration.
        num_rows: training rows.
        max_steps: the steps of the Trainer's full run.
    """
    lines = _differing(trainer, own, config)
    precision = precision_of(trainer)
    if config.precision != precision:
        lines.append(f"precision is {config.precision}, the Trainer's is {precision}")
    schedule = full_schedule(config, num_rows)
    if schedule.schedule_steps != max_steps:
        lines.append(
            f"full_run has {schedule.schedule_steps} steps, the Trainer trains {max_steps}"
        )
        return lines
    if schedule.kind == TRAINER:
        return lines  # its rates are whatever the Trainer's scheduler says
    for step, rate in enumerate(planned_rates(trainer, max_steps), start=1):
        if not is_same(rate, schedule.learning_rate_at(step)):
            lines.append(
                f"the learning rate of step {step} is {schedule.learning_rate_at(step):.9g} by "
                f"full_run, {rate:.9g} by the Trainer's scheduler "
                "(full_run.schedule=trainer takes the Trainer's own rates)"
            )
            break
    return lines


def _differing(trainer: Any, own: Mapping[str, Any], config: Config) -> list[str]:
    tree, built = config.model_dump(by_alias=True), settings_of(trainer)
    asked = config.engine.answers is not None
    lines = []
    for key, name in (ANSWERED if asked else ARGUMENTS).items():
        wanted, theirs = node_at(tree, key), node_at(built, key)
        if not asked and name in own:
            wanted, theirs = _value(name, wanted), own[name]
        if key != "pilot.data_seed" and not is_answer(wanted, theirs):
            lines.append(f"{key} is {wanted}, the Trainer's {name} is {theirs}")
    return lines
