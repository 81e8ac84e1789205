"""The bundled Llama and pairs in a plain Hugging Face ``Trainer``, as one would write it.

    python -m pilot +recipe=trainer recipe.trainer=recipes/llama_trainer.py   # a pilot of it
    python recipes/llama_trainer.py                                           # the full run

The same data, order of settings and model as ``llama_ft.py``, which pilot's own loop trains.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pilot.data.chat import encode
from pilot.data.formats import read_conversations

ASSETS = Path(__file__).resolve().parent / "assets"
MAX_TOKENS = 256


def build_trainer() -> Any:
    """The Trainer, ready and untrained."""
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        DataCollatorForSeq2Seq,
        Trainer,
        TrainingArguments,
    )

    tokenizer = AutoTokenizer.from_pretrained(ASSETS / "llama_1m")
    return Trainer(
        model=AutoModelForCausalLM.from_pretrained(ASSETS / "llama_1m"),
        args=TrainingArguments(
            output_dir="outputs/llama_trainer",
            num_train_epochs=3,
            learning_rate=1e-3,
            lr_scheduler_type="cosine",
            warmup_steps=10,
            per_device_train_batch_size=8,
            use_cpu=True,
        ),
        train_dataset=read_rows("train", tokenizer),
        eval_dataset=read_rows("validation", tokenizer),
        data_collator=DataCollatorForSeq2Seq(tokenizer),
    )


def read_rows(name: str, tokenizer: Any) -> list[dict[str, Any]]:
    """Encoded rows of ``pairs/NAME.jsonl.gz``: only the answers are supervised."""
    path = ASSETS / "pairs" / f"{name}.jsonl.gz"
    examples = encode(read_conversations(path), tokenizer, path, max_tokens=MAX_TOKENS)
    return [
        {"input_ids": row.input_ids.tolist(), "labels": row.labels.tolist(), "source": row.source}
        for row in examples
    ]


if __name__ == "__main__":
    build_trainer().train()
