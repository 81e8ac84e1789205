"""What makes a Trainer's run this run and no other, as plain JSON values by name.

Its arguments as they are after everything was resolved, model, optimizer, learning rates and number
of steps: everything that shapes the training, and nothing that only logs, evaluates, saves or
uploads. A pilot notes it of the Trainer that it trained; ``PilotCallback(verdict=...)`` asks the
same of the Trainer that is about to train. Unknown arguments (of a newer version, of a subclass)
are part of it: better one question too many than another run with this run's GO.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pilot.engines.hf.validation import num_rows
from pilot.fingerprint import without_folder
from pilot.tracking.hide import is_secret_key

_NUM_RATES = 32

# Arguments that decide where and when something is logged, evaluated, saved or sent, or how fast
# the same numbers come out. By their first word, and by name.
_OTHER_WORDS = ("eval", "save", "log", "logging", "hub", "push", "trackio")
_OTHERS = frozenset(
    ("auto_find_batch_size", "batch_eval_metrics", "bf16_full_eval", "dataloader_in_order")
    + ("dataloader_multiprocessing_context", "dataloader_num_workers", "dataloader_pin_memory")
    + ("dataloader_persistent_workers", "dataloader_prefetch_factor", "dataset_num_proc")
    + ("ddp_timeout", "debug", "disable_tqdm", "do_eval", "do_predict", "do_train")
    + ("enable_jit_checkpoint", "fp16_full_eval", "greater_is_better", "ignore_data_skip")
    + ("include_for_metrics", "include_num_input_tokens_seen", "label_names")
    + ("load_best_model_at_end", "local_rank", "metric_for_best_model", "output_dir")
    + ("per_device_eval_batch_size", "prediction_loss_only", "project", "report_to")
    + ("restore_callback_states_from_checkpoint", "resume_from_checkpoint", "run_name")
    + ("skip_memory_metrics", "torch_empty_cache_steps", "use_cache")
)
# Said by what follows from them: the number of steps, the batch, the rates.
_RESOLVED = frozenset(("num_train_epochs", "max_steps", "warmup_steps", "warmup_ratio"))
_NO_MODEL_KEYS = ("_name_or_path", "transformers_version", "use_cache", "id2label", "label2id")


def is_part_of_run(name: str) -> bool:
    """Whether the training argument ``name`` shapes the training itself."""
    if name in _OTHERS or name in _RESOLVED or name.startswith("_"):
        return False
    return name.split("_")[0] not in _OTHER_WORDS and not is_secret_key(name)


def run_facts(trainer: Any, max_steps: int) -> dict[str, Any]:
    """Everything that ``trainer`` says about its run of ``max_steps`` steps.

    Optimizer and learning rates are there once the loop has made them. Where parameters are split
    over processes (FSDP, DeepSpeed) their numbers are left out.
    """
    args = trainer.args
    facts: dict[str, Any] = {"class": type(trainer).__name__, "max_steps": int(max_steps)}
    for field in dataclasses.fields(args):
        if is_part_of_run(field.name):
            facts[field.name] = _plain(getattr(args, field.name, None))
    facts["data_seed"] = args.seed if args.data_seed is None else args.data_seed
    facts["rows_per_device"] = int(args.train_batch_size)  # also of several devices in a process
    facts["num_train_rows"] = num_rows(trainer.train_dataset)
    facts.update(_model(trainer))
    facts.update(_optimizer(trainer))
    facts["learning_rates"] = _rates(trainer, int(max_steps))
    return facts


def _plain(value: Any) -> Any:
    """A JSON value that is the same in every process: enumerations by value, paths by name."""
    value = getattr(value, "value", value) if hasattr(type(value), "__members__") else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        kept = {str(k): _plain(v) for k, v in value.items() if not is_secret_key(str(k))}
        return dict(sorted(kept.items()))
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(str(_plain(item)) for item in value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (str, Path)):
        return without_folder(str(value))
    text = str(value)  # a dtype, a device; an object without a text of its own shows its address
    return type(value).__name__ if " at 0x" in text else text


def _is_split(trainer: Any) -> bool:
    flags = ("is_fsdp_enabled", "is_deepspeed_enabled", "is_tp_enabled")
    return any(bool(getattr(trainer, flag, False)) for flag in flags)


def _model(trainer: Any) -> dict[str, Any]:
    model = trainer.accelerator.unwrap_model(trainer.model)
    facts: dict[str, Any] = {"model": type(model).__name__}
    config = getattr(model, "config", None)
    tree = config.to_dict() if config is not None and hasattr(config, "to_dict") else {}
    for name, value in tree.items():
        if name not in _NO_MODEL_KEYS:
            facts[f"model.{name}"] = _plain(value)
    for adapter, peft in dict(getattr(model, "peft_config", None) or {}).items():
        own = peft.to_dict() if hasattr(peft, "to_dict") else {}
        hidden = ("base_model_name_or_path", "revision", "peft_version", "inference_mode")
        facts |= {f"peft.{adapter}.{k}": _plain(v) for k, v in own.items() if k not in hidden}
    if not _is_split(trainer):
        params = list(model.parameters())
        facts["num_parameters"] = sum(p.numel() for p in params)
        facts["num_trainable_parameters"] = sum(p.numel() for p in params if p.requires_grad)
        facts["dtypes"] = sorted({str(p.dtype) for p in params})
    return facts


def _optimizer(trainer: Any) -> dict[str, Any]:
    found = trainer.optimizer
    while hasattr(found, "optimizer"):
        found = found.optimizer
    if found is None or not hasattr(found, "param_groups"):
        return {}
    facts: dict[str, Any] = {"optimizer": type(found).__name__}
    if not _is_split(trainer):
        hidden = ("params", "lr", "param_names")  # the rate of the moment; names of the same
        facts["optimizer_groups"] = [
            {
                "num_tensors": len(group["params"]),
                **{k: _plain(v) for k, v in sorted(group.items()) if k not in hidden},
            }
            for group in found.param_groups
        ]
    return facts


def _rates(trainer: Any, max_steps: int) -> dict[str, list[float]] | str | None:
    """The planned learning rates of every group at some steps; a scheduler by its class's name.

    A scheduler that computes its factor from the step can be asked without being moved.
    """
    found = trainer.lr_scheduler
    while hasattr(found, "scheduler"):
        found = found.scheduler
    factors = getattr(found, "lr_lambdas", None)
    if found is None or not factors or max_steps < 1:
        return None if found is None else type(found).__name__
    even = {1 + (max_steps - 1) * i // (_NUM_RATES - 1) for i in range(_NUM_RATES)}
    early = {2**i for i in range(max_steps.bit_length())}
    return {
        str(step): [
            float(f"{base * factor(step - 1):.12g}")
            for base, factor in zip(found.base_lrs, factors, strict=True)
        ]
        for step in sorted(even | early)
    }
