"""A complete, small configuration as plain dictionaries."""

from __future__ import annotations

import copy
from typing import Any

from pilot.records import StepRecord

_GATES = [
    "finite",
    "outcome",
    "labels",
    "movement",
    "early_damage",
    "validation",
    "progress",
    "coverage",
    "memory",
    "events",
    "invariance",
    "resume",
    "schedule",
]

_TREE: dict[str, Any] = {
    "recipe": {"name": "tiny", "module": "tiny"},
    "full_run": {"schedule_steps": 400, "warmup_steps": 5, "schedule": "cosine"},
    "optim": {"_target_": "torch.optim.SGD", "learning_rate": 0.1, "max_grad_norm": None},
    "batch": {"micro_batch_size": 8, "grad_accum_steps": 1},
    "precision": "fp32",
    "engine": {},
    "pilot": {"min_peak_steps": 16, "cooldown_steps": 4},
    "arms": {},
    "gates": {name: {} for name in _GATES},
    "checks": {},
    "tracking": {},
    "launcher": {"max_parallel": 1},
    "out_dir": "out",
}


def config_tree(**sections: Any) -> dict[str, Any]:
    """The tree with sections updated (mappings are merged, other values replace)."""
    tree = copy.deepcopy(_TREE)
    for name, value in sections.items():
        if isinstance(value, dict) and isinstance(tree.get(name), dict):
            tree[name].update(value)
        else:
            tree[name] = value
    return tree


def step_record(step: int, **values: Any) -> StepRecord:
    """A healthy step record with some values replaced."""
    base: dict[str, Any] = {
        "step": step,
        "learning_rate": 0.1,
        "loss": 2.0,
        "num_supervised_tokens": 40,
        "num_tokens": 50,
        "grad_norm": 1.0,
        "clip_coef": 1.0,
        "relative_update": 1e-3,
        "relative_update_median": 1e-3,
        "param_norm": 10.0,
        "loss_scale": None,
        "step_skipped": False,
        "finite_loss": True,
        "finite_grads": True,
        "finite_params": True,
        "row_ids": (1, 2),
        "row_hash": "00",
        "longest_tokens": 9,
        "source_counts": {"a": 2},
    }
    return StepRecord(**{**base, **values})
