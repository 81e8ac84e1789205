"""TRL's trainers over the tiny Llama: real ones, offline, a step in milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import torch
import trl
from transformers.trainer_callback import PrinterCallback

from tests import tiny_llama
from tests.engines.trainers import make_model, plain_arguments

datasets.disable_progress_bars()
_WORDS = ["what", "does", "the", "function", "mean", "of", "statistics", "do", "user", "answer"]
NUM_TRAIN, NUM_HELD = 36, 12  # with three micro-batches of four, an epoch is three whole steps
KINDS = {
    "sft": (trl.SFTTrainer, trl.SFTConfig),
    "dpo": (trl.DPOTrainer, trl.DPOConfig),
    "kto": (trl.KTOTrainer, trl.KTOConfig),
    "reward": (trl.RewardTrainer, trl.RewardConfig),
    "grpo": (trl.GRPOTrainer, trl.GRPOConfig),
}


def text(row: int, length: int) -> str:
    """Some words, other ones for every row."""
    return " ".join(
        _WORDS[(row * 7 + place * (1 + row % 3)) % len(_WORDS)] for place in range(length)
    )


def make_row(kind: str, row: int) -> dict[str, Any]:
    """One row in the format of ``kind``."""
    good, bad = f" {text(row + 1, 3 + row % 5)}", f" {text(row + 2, 3 + row % 4)}"
    if kind == "sft":
        return {"prompt": text(row, 4), "completion": good}
    if kind == "kto":
        return {"prompt": text(row, 4), "completion": good, "label": bool(row % 2)}
    if kind == "grpo":
        return {"prompt": text(row, 4)}
    pair = {"chosen": good, "rejected": bad}
    return pair if kind == "reward" else {"prompt": text(row, 4), **pair}


def _reward(completions: list[str], **more: Any) -> list[float]:
    return [float(len(set(completion))) for completion in completions]


def _model(kind: str, dropout: float, lora: bool) -> Any:
    if kind != "reward":
        return make_model(dropout, lora)
    from transformers import LlamaForSequenceClassification

    config = tiny_llama.model().config
    config.num_labels = 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForSequenceClassification(config)


def make_trl(
    kind: str,
    folder: Path,
    *,
    dropout: float = 0.0,
    lora: bool = False,
    rows: list[dict[str, Any]] | None = None,
    tokenizer: Any = None,
    **arguments: Any,
) -> Any:
    """A trainer of TRL as a user builds it; fp32 and no checkpointing unless asked for."""
    trainer_type, config_type = KINDS[kind]
    more: dict[str, Any] = {}
    if kind in ("dpo", "kto"):
        more["ref_model"] = tiny_llama.model()
    if kind == "grpo":
        more["reward_funcs"] = _reward
        arguments = {"num_generations": 4, "max_completion_length": 8, **arguments}
    plain = {"bf16": False, "gradient_checkpointing": False, **arguments}
    made = rows or [make_row(kind, row) for row in range(NUM_TRAIN + NUM_HELD)]
    count = NUM_TRAIN if rows is None else len(made) - NUM_HELD
    trainer = trainer_type(
        model=_model(kind, dropout, lora),
        args=config_type(**plain_arguments(folder, **plain)),
        train_dataset=datasets.Dataset.from_list(made[:count]),
        eval_dataset=datasets.Dataset.from_list(made[count:]),
        processing_class=tokenizer or tiny_llama.tokenizer(),
        **more,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer
