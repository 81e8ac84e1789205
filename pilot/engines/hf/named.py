"""Training arguments by their own name: which there are, what they take, which pilot keeps.

The table of an arguments class is made where transformers is imported and checked anywhere: it is
plain JSON, so the command line can refuse a wrong name or value of an arm before anything runs.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pilot.errors import Mistake
from pilot.mistakes import nearest
from pilot.tracking.hide import is_secret_key

KEY = "recipe.arguments"
Table = Mapping[str, Mapping[str, Any]]

# Training arguments that pilot computes with: they have a key of ours, and only that one.
KEYED: Mapping[str, str] = {
    "learning_rate": "optim.learning_rate",
    "max_grad_norm": "optim.max_grad_norm",
    "optim": "optim._target_",
    "per_device_train_batch_size": "batch.micro_batch_size",
    "gradient_accumulation_steps": "batch.grad_accum_steps",
    "max_steps": "full_run.schedule_steps",
    "num_train_epochs": "full_run.epochs",
    "warmup_steps": "full_run.warmup_steps",
    "warmup_ratio": "full_run.warmup_frac",
    "lr_scheduler_type": "full_run.schedule",
    "lr_scheduler_kwargs": "full_run.schedule",
    "seed": "pilot.seed",
    "data_seed": "pilot.data_seed",
    "bf16": "precision",
    "fp16": "precision",
}
# What a Trainer does beside training: pilot switches it off, in a folder of its own.
_BESIDE = (
    *("output_dir", "overwrite_output_dir", "logging_dir", "report_to", "run_name", "project"),
    *("save_", "hub_", "trackio_", "eval_", "do_", "push_to_hub", "load_best_model_at_end"),
    *("resume_from_checkpoint", "ignore_data_skip", "restore_callback_states_from_checkpoint"),
    *("metric_for_best_model", "greater_is_better", "auto_find_batch_size", "disable_tqdm"),
)
_NAMES: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    tuple: "a list",
    dict: "a dictionary",
    type(None): "null",
}


def argument_table(kind: type[Any], values: object = None) -> dict[str, dict[str, Any]]:
    """What each argument of the class ``kind`` takes, as JSON.

    ``kinds`` are names of plain types (empty: anything), ``choices`` the texts that an enumeration
    has. ``own`` is what ``values``, an instance, has.
    """
    try:
        hints = get_type_hints(kind)
    except (NameError, TypeError, AttributeError):  # a class whose annotations cannot be read
        hints = {}
    table = {}
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        kinds, choices = _accepted(hints.get(field.name, Any))
        choices = choices or [plain(item) for item in field.metadata.get("choices") or ()]
        own = None if is_secret_key(field.name) else plain(getattr(values, field.name, None))
        table[field.name] = {"kinds": kinds, "choices": choices, "own": own}
    return table


def plain(value: Any) -> Any:
    """A value as JSON has it: enumerations by their value, what is no plain value as text."""
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return str(value)


def argument_mistakes(values: object, table: Table | None) -> list[Mistake]:
    """Everything wrong with ``recipe.arguments``; without a ``table`` only what it may not name."""
    if not isinstance(values, Mapping):
        remedy = f"write {KEY}: {{name: value}}"
        return [_wrong("", values, "must be a dictionary of training arguments", remedy)]
    found = (_mistake(str(name), value, table) for name, value in values.items())
    return [mistake for mistake in found if mistake is not None]


def _mistake(name: str, value: Any, table: Table | None) -> Mistake | None:
    if name in KEYED:
        rule = "is set by a key of its own: pilot computes with it"
        return _wrong(name, value, rule, f"write {KEYED[name]}=...")
    if _is_beside(name):
        rule = "changes nothing that is trained: pilot switches it off for the time of the pilot"
        return _wrong(name, value, rule, "leave it out; your script's own value is not touched")
    if table is None:
        return None
    if name not in table:
        near = nearest(name, [n for n in table if not _is_beside(n)])
        hint = f"did you mean {near!r}?" if near else "the arguments are those of your script's"
        return _wrong(name, value, "the Trainer's arguments have no such name", hint)
    rule = wrong_value(value, table[name])
    return _wrong(name, value, rule, "give a value of that kind") if rule else None


def wrong_value(value: Any, entry: Mapping[str, Any]) -> str:
    """Why ``value`` does not fit an argument of the table; empty when it does."""
    kinds, choices = list(entry["kinds"]), list(entry["choices"])
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    if choices and isinstance(value, str):
        near = nearest(value, [str(choice) for choice in choices])
        hint = f"; did you mean {near!r}?" if near else ""
        return "" if value in choices else f"must be one of {', '.join(map(str, choices))}{hint}"
    if not kinds or any(_fits(value, kind) for kind in kinds):
        return ""
    words = dict.fromkeys(text for kind, text in _NAMES.items() if kind.__name__ in kinds)
    return f"must be {' or '.join([*words, *(['one of its names'] if choices else [])])}"


def _fits(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "bool"
    if isinstance(value, int):
        return kind in ("int", "float")
    if isinstance(value, (list, tuple)):
        return kind in ("list", "tuple")
    return type(value).__name__ == kind


def _is_beside(name: str) -> bool:
    return any(name.startswith(b) if b.endswith("_") else name == b for b in _BESIDE)


def _accepted(hint: Any) -> tuple[list[str], list[Any]]:
    """Names of the plain types, and the choices, that an annotation allows; no names: anything."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [_accepted(part) for part in get_args(hint)]
        choices = [choice for _, more in parts for choice in more]
        anything = any(not kinds and not more for kinds, more in parts)
        return [] if anything else sorted({k for kinds, _ in parts for k in kinds}), choices
    if get_origin(hint) is Literal:
        return [], [plain(choice) for choice in get_args(hint)]
    kind = get_origin(hint) or hint
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return [], [plain(member) for member in kind]
    return ([kind.__name__], []) if kind in _NAMES else ([], [])


def _wrong(name: str, value: Any, rule: str, remedy: str) -> Mistake:
    key = f"{KEY}.{name}" if name else KEY
    return Mistake(key=key, value=repr(value), rule=rule, remedy=remedy)
