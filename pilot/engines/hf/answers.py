"""What a Trainer says about itself, in our words: the settings of a run that nobody repeats.

The steps are the Trainer's own count, the numbers its own arguments. A schedule has the name of a
formula of ours only when every planned rate is that formula's; any other is ``trainer``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pilot.engines.hf.keys import is_same
from pilot.engines.hf.named import plain
from pilot.engines.hf.rows import inner_batch_sampler
from pilot.schedule import TRAINER, Schedule

# By the names of a Trainer's class and those it is made from.
_RL = re.compile(r"GRPO|RLOO|PPO|OnlineDPO|XPO|NashMD|A2PO|GMPO|SDPO")
_PREFERENCE = re.compile(r"DPO|KTO|ORPO|CPO|SimPO|IPO|BCO|TPO|Reward")
# The scheduler of a Trainer -> the formulas of ours that it may be.
_FORMULAS: Mapping[str, tuple[str, ...]] = {
    "linear": ("linear",),
    "polynomial": ("linear", "constant"),
    "constant": ("constant",),
    "constant_with_warmup": ("constant",),
    "warmup_stable_decay": ("wsd", "constant"),
}


def objective_of(trainer: Any) -> str:
    """``lm``, ``preference`` or ``rl``, by the kind of Trainer."""
    names = [kind.__name__ for kind in type(trainer).__mro__]
    for objective, pattern in (("rl", _RL), ("preference", _PREFERENCE)):
        if any(pattern.search(name) for name in names):
            return objective
    return "lm"


def settings_of(trainer: Any, loader: Any = None) -> dict[str, Any]:
    """The settings of ``trainer`` by our keys, nested; all but the schedule's name.

    Args:
        trainer: a Trainer that has not been trained.
        loader: its training loader; with it ``pilot.data_seed`` is the seed that the order has.
    """
    args = trainer.args
    own_scheduler = trainer.lr_scheduler is not None
    return {
        "full_run": {**_length(args), **({"warmup_steps": 0} if own_scheduler else _warmup(args))},
        "optim": _optimizer(trainer),
        "batch": {
            "micro_batch_size": batch_of(trainer),
            "grad_accum_steps": int(args.gradient_accumulation_steps),
        },
        "precision": precision_of(trainer),
        "pilot": {"seed": int(args.seed), "data_seed": _data_seed(args, loader)},
    }


def batch_of(trainer: Any) -> int:
    """Rows of one forward pass of this process."""
    found = getattr(trainer, "_train_batch_size", None)
    return int(trainer.args.train_batch_size if found is None else found)


def precision_of(trainer: Any) -> str:
    """The arithmetic of the forward pass, as accelerate was told."""
    found = str(getattr(trainer.accelerator, "mixed_precision", "no"))
    flags = next((p for p in ("bf16", "fp16") if getattr(trainer.args, p)), "fp32")
    return found if found in ("bf16", "fp16") else flags


def schedule_of(trainer: Any, rates: Sequence[float], warmup_steps: int) -> dict[str, Any]:
    """``schedule`` and its numbers: the formula that gives all ``rates``, or ``trainer``.

    Args:
        trainer: the Trainer.
        rates: the planned learning rate of every step; empty: they are not known.
        warmup_steps: steps of its warm-up.
    """
    own = trainer.lr_scheduler is not None  # the script's: no argument decides
    for formula in () if own else _candidates(trainer, rates, warmup_steps):
        planned = (formula.learning_rate_at(step) for step in range(1, len(rates) + 1))
        if all(is_same(one, other) for one, other in zip(rates, planned, strict=True)):
            return {
                "schedule": formula.kind,
                "min_learning_rate_frac": formula.min_learning_rate_frac,
                "decay_frac": formula.decay_frac,
            }
    return {"schedule": TRAINER, "min_learning_rate_frac": 0.0, "decay_frac": 0.1}


def warmup_of(args: Any, max_steps: int) -> int:
    """Steps of the warm-up; the scheduler ``constant`` has none, whatever the arguments say."""
    return 0 if scheduler_name(args) == "constant" else int(args.get_warmup_steps(max_steps))


def scheduler_name(args: Any) -> str:
    """The Trainer's own name of its scheduler."""
    return str(plain(args.lr_scheduler_type))


def _candidates(trainer: Any, rates: Sequence[float], warmup: int) -> Iterator[Schedule]:
    if not rates:
        return
    steps, kwargs = len(rates), dict(trainer.args.lr_scheduler_kwargs or {})
    rate = _peak_rate(trainer)
    floors = [0.0]
    for name in ("min_lr_rate", "min_lr_ratio"):
        floors += [float(kwargs[name])] if isinstance(kwargs.get(name), (int, float)) else []
    for value in (kwargs.get("min_lr"), kwargs.get("lr_end"), rates[-1]):
        floors += [float(value) / rate] if isinstance(value, (int, float)) and rate > 0 else []
    decay = kwargs.get("num_decay_steps")
    decays = [float(decay) / steps] if isinstance(decay, int) and 0 < decay <= steps else []
    for kind in _FORMULAS.get(scheduler_name(trainer.args), ("cosine", "linear", "constant")):
        for floor in dict.fromkeys(floor for floor in floors if 0.0 <= floor < 1.0):
            for decay_frac in decays if kind == "wsd" else [0.1]:
                yield Schedule(
                    kind=kind,
                    learning_rate=rate,
                    schedule_steps=steps,
                    warmup_steps=min(warmup, steps),
                    min_learning_rate_frac=floor,
                    decay_frac=decay_frac,
                )


def _length(args: Any) -> dict[str, Any]:
    """What the Trainer counts by: optimizer steps, or passes over its rows."""
    if args.max_steps >= 0:
        return {"schedule_steps": int(args.max_steps)}
    return {"epochs": float(args.num_train_epochs)}


def _warmup(args: Any) -> dict[str, Any]:
    if scheduler_name(args) == "constant":
        return {"warmup_steps": 0}
    steps, ratio = float(args.warmup_steps), float(getattr(args, "warmup_ratio", None) or 0.0)
    if 0.0 < steps < 1.0 or (steps == 0.0 and ratio):
        return {"warmup_frac": steps or ratio}
    return {"warmup_steps": int(steps)}


def _optimizer(trainer: Any) -> dict[str, Any]:
    args = trainer.args
    limit = float(args.max_grad_norm or 0.0)
    found = {
        "_target_": str(plain(args.optim)),
        "learning_rate": float(args.learning_rate),
        "max_grad_norm": limit if limit not in (0.0, float("inf")) else None,
        "weight_decay": float(args.weight_decay),
    }
    kind, values = _own_optimizer(trainer)
    if kind is None:
        return {**found, **_moments(trainer)}
    found["_target_"] = f"{kind.__module__}.{kind.__qualname__}"
    rate = values.get("initial_lr", values.get("lr"))
    found["learning_rate"] = found["learning_rate"] if rate is None else float(rate)
    found["weight_decay"] = float(values.get("weight_decay", 0.0))
    return found


def _own_optimizer(trainer: Any) -> tuple[Any, Mapping[str, Any]]:
    """Class and numbers of an optimizer that the script gives; (None, {}): arguments decide."""
    if trainer.optimizer is not None:
        return type(trainer.optimizer), trainer.optimizer.param_groups[0]
    kind, values = getattr(trainer, "optimizer_cls_and_kwargs", None) or (None, {})
    return kind, values


def _moments(trainer: Any) -> dict[str, float]:
    """Those numbers of Adam that the Trainer's optimizer is given."""
    args = trainer.args
    try:
        given = trainer.get_optimizer_cls_and_kwargs(args, trainer.model)[1]
    except Exception:  # an optimizer that cannot be made here fails when it is made
        return {}
    found = {}
    if tuple(given.get("betas") or ()) == (args.adam_beta1, args.adam_beta2):
        found = {"beta1": float(args.adam_beta1), "beta2": float(args.adam_beta2)}
    if given.get("eps") == args.adam_epsilon:
        found["eps"] = float(args.adam_epsilon)
    return found


def _peak_rate(trainer: Any) -> float:
    rate: float = _optimizer(trainer)["learning_rate"]
    return rate


def _data_seed(args: Any, loader: Any) -> int:
    """The seed of the order that the loader draws; without one, what the arguments say."""
    sampler = getattr(inner_batch_sampler(loader), "sampler", None)
    known = getattr(sampler, "initial_seed", None)
    if isinstance(known, int):
        return known
    return int(args.seed if args.data_seed is None else args.data_seed)
