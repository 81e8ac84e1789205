"""Our keys that a Trainer has training arguments for, and what of a configuration it did not say.

Pure, and without torch: the command line asks it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilot.arms.specs import ABSENT, node_at

SAME = 1e-12  # relative: two ways to write one float

# Key of ours -> the training argument with the same meaning.
ARGUMENTS: Mapping[str, str] = {
    "optim.learning_rate": "learning_rate",
    "optim.max_grad_norm": "max_grad_norm",
    "optim.weight_decay": "weight_decay",
    "batch.micro_batch_size": "per_device_train_batch_size",
    "batch.grad_accum_steps": "gradient_accumulation_steps",
    "pilot.seed": "seed",
}
# The same with those that only a Trainer's answers have.
ANSWERED: Mapping[str, str] = {
    **ARGUMENTS,
    "optim._target_": "optim",
    "optim.beta1": "adam_beta1",
    "optim.beta2": "adam_beta2",
    "optim.eps": "adam_epsilon",
    "pilot.data_seed": "data_seed",
}
LENGTH = ("full_run.schedule_steps", "full_run.epochs")
WARMUP = ("full_run.warmup_steps", "full_run.warmup_frac")
SHAPE = ("full_run.schedule", "full_run.min_learning_rate_frac", "full_run.decay_frac")
MAPPED = (*ANSWERED, *LENGTH, *WARMUP, *SHAPE, "precision")


def changed_keys(tree: Mapping[str, Any]) -> list[str]:
    """The keys of a configuration whose value is not the Trainer's own answer."""
    answers = node_at(tree, "engine.answers")
    if not isinstance(answers, Mapping):
        return []
    return [key for key in MAPPED if not is_answer(node_at(tree, key), node_at(answers, key))]


def is_answer(value: Any, answer: Any) -> bool:
    """Whether ``value`` is what the Trainer said; null and an absent key are the same."""
    if any(item is ABSENT or item is None for item in (value, answer)):
        return all(item is ABSENT or item is None for item in (value, answer))
    return is_same(value, answer)


def is_same(one: Any, other: Any) -> bool:
    """Whether two values mean the same; floats may differ in how they were written."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if all(isinstance(value, (int, float)) for value in (one, other)):
        return bool(abs(one - other) <= SAME * max(abs(one), abs(other)))
    return bool(one == other)
