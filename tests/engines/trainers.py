"""The same tiny Llama, rows and settings for the native engine and for a real Trainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pilot.config import Config
from pilot.engines import seeds
from pilot.engines.base import Engine, Program, StepRequest
from pilot.engines.hf.rows import planned_batches
from pilot.engines.native import NativeEngine
from pilot.engines.transformers import TransformersEngine
from pilot.records import Outcome, StepRecord
from pilot.schedule import full_schedule
from tests import tiny_llama
from tests.engines.collect import Collect
from tests.trees import config_tree

MAX_STEPS, WARMUP, RATE, SIZE = 60, 3, 1e-2, 4


def make_rows(count: int, seed: int = 0) -> list[dict[str, list[int]]]:
    """Rows of unequal length; a token is followed by itself plus one, prompts are masked."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        length = int(torch.randint(5, 20, (1,), generator=generator))
        first = int(torch.randint(6, 300, (1,), generator=generator))
        ids = [6 + (first + k) % 300 for k in range(length)]
        rows.append({"input_ids": ids, "labels": [-100, -100, *ids[2:]]})
    return rows


TRAIN, HELD = make_rows(32), make_rows(12, seed=1)


def collate(rows: Sequence[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Rows padded on the right."""
    width = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": 0, "labels": -100, "attention_mask": 0}
    full = [{**row, "attention_mask": [1] * len(row["input_ids"])} for row in rows]
    return {
        key: torch.tensor([row[key] + [value] * (width - len(row[key])) for row in full])
        for key, value in fill.items()
    }


def make_model(dropout: float = 0.0, lora: bool = False) -> Any:
    """The tiny Llama with attention dropout, or a LoRA adapter on it."""
    model = tiny_llama.model()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = dropout
    if not lora:
        return model
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, lora_dropout=dropout))


def plain_arguments(folder: Path, **more: Any) -> dict[str, Any]:
    """The training arguments of all the trainers here, and ``more``."""
    return {
        "output_dir": str(folder),
        "max_steps": MAX_STEPS,
        "warmup_steps": WARMUP,
        "learning_rate": RATE,
        "lr_scheduler_type": "cosine",
        "per_device_train_batch_size": SIZE,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_steps": 1,
        "seed": 7,
        **more,
    }


def make_trainer(
    folder: Path,
    *,
    kind: Any = None,
    dropout: float = 0.0,
    lora: bool = False,
    model: Any = None,
    collator: Any = collate,
    train: Any = None,
    evaluate: Any = None,
    optimizers: Any = (None, None),
    **arguments: Any,
) -> Any:
    """A Trainer (or ``kind``) over the tiny Llama."""
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import PrinterCallback

    trainer = (kind or Trainer)(
        model=model or make_model(dropout, lora),
        args=TrainingArguments(**plain_arguments(folder, **arguments)),
        train_dataset=TRAIN if train is None else train,
        eval_dataset=HELD if evaluate is None else evaluate,
        data_collator=collator,
        optimizers=optimizers,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def config_for(trainer: Any, **sections: Any) -> Config:
    """The configuration that describes ``trainer``."""
    args = trainer.args
    tree: dict[str, Any] = {
        "full_run": {"schedule_steps": MAX_STEPS, "warmup_steps": WARMUP, "schedule": "cosine"},
        "optim": {
            "_target_": "torch.optim.AdamW",
            "learning_rate": args.learning_rate,
            "max_grad_norm": args.max_grad_norm or None,
        },
        "batch": {
            "micro_batch_size": args.per_device_train_batch_size,
            "grad_accum_steps": args.gradient_accumulation_steps,
        },
        "precision": "bf16" if args.bf16 else "fp32",
        "pilot": {"seed": args.seed, "validation_rows": 8},
    }
    return Config.model_validate(config_tree(**{**tree, **sections}))


def attach(trainer: Any, config: Config | None = None) -> TransformersEngine:
    """The engine on ``trainer``."""
    state = seeds.random_state()
    planned = planned_batches(trainer, trainer.get_train_dataloader(), 40)
    seeds.set_random_state(state)
    return TransformersEngine(
        trainer, config or config_for(trainer), planned=planned, first_step=1, observer=Collect()
    )


class LlamaRecipe:
    """The native recipe of the same run; other rows come with the collator that reads them."""

    def __init__(
        self,
        dropout: float = 0.0,
        lora: bool = False,
        train: Any = None,
        held: Any = None,
        collator: Any = collate,
    ) -> None:
        self.train = TRAIN if train is None else train
        self.validation = {"validation": HELD if held is None else held}
        self._collate, self._dropout, self._lora = collator, dropout, lora

    def build_model(self, scale: str) -> Any:
        return make_model(self._dropout, self._lora)

    def facts(self, example: Any) -> Any:
        from pilot.recipe import RowFacts

        batch = self.collate([example])
        return RowFacts(
            source="train",
            num_tokens=int(batch["attention_mask"].sum()),
            num_supervised_tokens=int(self.num_supervised(batch)),
        )

    def collate(self, examples: Any) -> Any:
        return self._collate(list(examples))

    def num_supervised(self, batch: Any) -> torch.Tensor:
        return (batch["labels"][:, 1:] != -100).sum(dim=1)

    def losses(self, model: Any, batch: Any) -> torch.Tensor:
        logits = model(**{k: v for k, v in batch.items() if k != "labels"}).logits[:, :-1].float()
        targets = batch["labels"][:, 1:]
        flat = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="none"
        )
        return flat.view_as(targets).sum(dim=1)


def native(config: Config, order: Sequence[int], recipe: Any = None, **model: Any) -> NativeEngine:
    """The native engine over the same rows, or over those of ``recipe``."""
    return NativeEngine(
        recipe or LlamaRecipe(**model),
        config,
        order=np.array(order, dtype=np.int64),
        first_step=1,
        observer=Collect(),
    )


def run_steps(
    engine: Engine,
    last: int,
    *,
    before: Callable[[], object] | None = None,
    after: Callable[[], object] | None = None,
) -> list[StepRecord]:
    """Train up to step ``last`` at the planned rates; ``after`` is called behind every step."""
    schedule = full_schedule(engine.config, len(TRAIN))  # type: ignore[attr-defined]

    def program() -> Program:
        if before is not None:
            before()
        while engine.step < last:
            step = engine.step + 1
            yield StepRequest(
                learning_rate=schedule.learning_rate_at(step), keep_grads=step == last
            )
            if after is not None:
                after()
        engine.flush()
        return Outcome(status=Outcome.COMPLETED, last_step=engine.step)

    engine.run(program())
    found: list[StepRecord] = engine.observer.steps  # type: ignore[attr-defined]
    return found
