"""The parts of synthetic pilots: configuration, gates, survey, records, evidence. All healthy."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pilot.gates import Gates
from pilot.records import Evidence, StepRecord, ValidationRecord
from pilot.view import RowTable

LOWER = "lr_x1_3"
NUM_ROWS = 480
SOURCES = ("code", "prose", "rare")
PRIMARY, OTHER = "held_out", "other"
GATE_DEFAULTS: dict[str, Any] = {
    "strict": False,
    "waive": {},
    "finite": {"need": "required"},
    "outcome": {"need": "required"},
    "labels": {"need": "required"},
    "movement": {"need": "optional"},
    "early_damage": {"need": "optional"},
    "validation": {"need": "required"},
    "progress": {"need": "required"},
    "coverage": {"need": "required"},
    "memory": {"need": "optional"},
    "events": {"need": "required"},
    "invariance": {"need": "optional"},
    "resume": {"need": "optional"},
    "schedule": {"need": "optional"},
}


def config_tree(**overrides: Any) -> dict[str, Any]:
    """A valid configuration as plain dictionaries; keys with dots (as ``a__b``) are overridden."""
    tree: dict[str, Any] = {
        "recipe": {"name": "synthetic", "module": "synthetic"},
        "full_run": {"schedule_steps": 400, "warmup_steps": 12, "schedule": "constant"},
        "optim": {
            "_target_": "torch.optim.AdamW",
            "learning_rate": 0.003,
            "max_grad_norm": 1.0,
        },
        "batch": {"micro_batch_size": 4, "grad_accum_steps": 2},
        "precision": "fp32",
        "engine": {"name": "native", "device": "cpu"},
        "pilot": {"min_peak_steps": 36, "cooldown_steps": 8, "validation_rows": 64},
        "arms": {},
        "gates": copy.deepcopy(GATE_DEFAULTS),
        "checks": {"skip": []},
        "tracking": {"uri": None},
        "launcher": {"name": "local"},
        "out_dir": "outputs/synthetic",
    }
    for key, value in overrides.items():
        *parents, leaf = key.split("__")
        node = tree
        for parent in parents:
            node = node[parent]
        node[leaf] = value
    return tree


def make_gates(**overrides: Any) -> Gates:
    """The gates with their defaults; ``finite={"max_skipped_frac": 0.0}`` changes one section."""
    tree = copy.deepcopy(GATE_DEFAULTS)
    for name, value in overrides.items():
        tree[name] = {**tree[name], **value} if isinstance(value, Mapping) else value
    return Gates.model_validate(tree)


def make_rows() -> RowTable:
    """480 rows: 300 ``code``, 170 ``prose``, 10 ``rare``; lengths 20 to 200 tokens, five of 200."""
    rng = np.random.default_rng(7)
    tokens = rng.integers(20, 180, size=NUM_ROWS)
    tokens[:5] = 200
    source = np.repeat(np.arange(3), (300, 170, 10))
    return RowTable(
        num_tokens=tokens.astype(np.int64),
        num_supervised_tokens=(tokens // 2).astype(np.int64),
        source=source.astype(np.int64),
        source_names=SOURCES,
    )


def make_survey(**overrides: Any) -> dict[str, Any]:
    """``survey.json`` of the healthy pilot."""
    survey = {
        "num_train_rows": NUM_ROWS,
        "source_names": list(SOURCES),
        "validation_rows": {PRIMARY: 64, OTHER: 64},
        "primary_validation": PRIMARY,
        "objective": "lm",
        "num_parameters": 1_000_000,
        "num_trainable_parameters": 1_000_000,
        "parameter_bytes": 4_000_000,
        "checkpoint_bytes": 12_000_000,
        "vocab_size": 2048,
        "max_positions": 512,
        "label_audit": [make_audit("train", NUM_ROWS), make_audit(PRIMARY, 64)],
        "order_audit": {
            "num_rows": NUM_ROWS,
            "num_sources": 3,
            "longest_run": 9,
            "longest_run_source": 0,
            "expected_longest_run": 10.5,
            "longest_run_bound": 27,
            "blocked": False,
            "second_epoch_differs": True,
        },
        "timing": {"start_secs": 1.0, "step_secs": 0.05, "validation_secs": 0.4},
        "failure": None,
        "device": "cpu",
        "num_threads": 1,
    }
    return {**survey, **overrides}


def make_audit(name: str, num_rows: int, **overrides: Any) -> dict[str, Any]:
    """The label audit of one healthy set."""
    audit: dict[str, Any] = {
        "set": name,
        "num_rows": num_rows,
        "num_rows_checked": num_rows,
        "longest_tokens": 200,
    }
    for key in ("too_long", "bad_input_ids", "bad_label_ids", "no_labels"):
        audit[f"num_{key}"], audit[key] = 0, []
    return {**audit, **overrides}


def make_step(step: int, **overrides: Any) -> StepRecord:
    """One healthy step record."""
    values: dict[str, Any] = {
        "step": step,
        "learning_rate": 0.003,
        "loss": 3.0,
        "num_supervised_tokens": 400,
        "num_tokens": 800,
        "grad_norm": 0.5,
        "clip_coef": 1.0,
        "relative_update": 1e-3,
        "relative_update_median": 1e-3,
        "param_norm": 50.0,
        "loss_scale": None,
        "step_skipped": False,
        "finite_loss": True,
        "finite_grads": True,
        "finite_params": True,
        "row_ids": (0, 1),
        "row_hash": f"{step:016x}",
        "longest_tokens": 200,
        "source_counts": {"code": 2},
    }
    return StepRecord(**{**values, **overrides})


def make_validation(
    at: str,
    step: int,
    loss: float,
    *,
    name: str = PRIMARY,
    primary: bool = True,
    num_examples: int = 64,
    noise: float = 0.02,
    seed: int = 0,
) -> ValidationRecord:
    """A validation whose token-weighted mean is ``loss``, with ``noise`` per example.

    Examples differ by a fixed offset of their own (the same at every validation), so paired
    differences are far less noisy than the losses. A ``loss`` that is not finite spoils the first
    example.
    """
    fixed = np.random.default_rng(11 if primary else 12)
    counts = fixed.integers(20, 200, size=num_examples)
    offsets = fixed.normal(0.0, 0.5, size=num_examples)
    moving = np.random.default_rng([seed, step, len(at)]).normal(0.0, noise, size=num_examples)
    bad = not math.isfinite(loss)
    spread = offsets + moving
    spread -= np.sum(counts * spread) / counts.sum()
    sums = counts * ((3.0 if bad else loss) + spread)
    if bad:
        sums[0] = loss
    return ValidationRecord(
        at=at,
        step=step,
        name=name,
        primary=primary,
        loss=float(sums.sum() / counts.sum()),
        loss_sums=tuple(float(x) for x in sums),
        token_counts=tuple(int(x) for x in counts),
        attempt=1,
    )


def make_evidence(experiment: str, step: int, **values: Any) -> Evidence:
    """One piece of evidence."""
    return Evidence(experiment=experiment, scale="full", step=step, values=values)


def make_movement(step: int = 48, **overrides: Any) -> Evidence:
    """The movement evidence of a model of 20 tensors and a million parameters that all moved."""
    values: dict[str, Any] = {
        "num_tensors": 20,
        "num_parameters": 1_000_000,
        "no_grad": [],
        "still": [],
        "frozen_moved": [],
    }
    return make_evidence("movement", step, **{**values, **overrides})
