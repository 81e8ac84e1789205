"""Make the example logs of ``diagnose``: two real Hugging Face Trainer runs of the bundled model.

Run: ``python recipes/assets/example_logs.py [--out FOLDER]`` (a few minutes on one CPU core).
``healthy`` and ``diverged`` differ in one thing, the learning rate; both log every step.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from pilot.recipe import RecipeHandle

STEPS, WARMUP_STEPS, EVAL_STEPS, EVAL_ROWS = 160, 10, 40, 64
BATCH_ROWS, SEQUENCE_TOKENS, SEED = 8, 128, 0
LEARNING_RATES = {"healthy": 1e-3, "diverged": 0.1}
NO_CLIPPING = 1e9  # a limit that is never reached: the norm is still logged
KEPT = ("step", "loss", "grad_norm", "learning_rate", "eval_loss")


def train(name: str) -> list[dict[str, Any]]:
    """The log history of one run: one entry per step, and one per validation."""
    module = Path(__file__).parents[1] / "llama_ft.py"
    settings = {"name": "llama_ft", "module": "llama_ft"}
    recipe = RecipeHandle(
        module_path=module, settings=settings, sequence_length=SEQUENCE_TOKENS, seed=SEED
    ).build()
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH_ROWS,
            per_device_eval_batch_size=BATCH_ROWS,
            learning_rate=LEARNING_RATES[name],
            warmup_steps=WARMUP_STEPS,
            max_grad_norm=NO_CLIPPING,
            lr_scheduler_type="cosine",
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=EVAL_STEPS,
            eval_on_start=True,
            save_strategy="no",
            report_to=[],
            seed=SEED,
            use_cpu=True,
            remove_unused_columns=False,
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=recipe.build_model("full"),
            args=arguments,
            train_dataset=recipe.train,
            eval_dataset=recipe.validation["validation"][:EVAL_ROWS],
            data_collator=recipe.collate,
        )
        trainer.train()
        return [dict(entry) for entry in trainer.state.log_history]


def main() -> None:
    """Write both logs as ``trainer_state.json`` files, with the keys that a reader uses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "logs")
    out = parser.parse_args().out
    for name in LEARNING_RATES:
        history = [{k: e[k] for k in KEPT if k in e} for e in train(name)]
        history = [entry for entry in history if len(entry) > 1]
        state = {"global_step": STEPS, "max_steps": STEPS, "logging_steps": 1}
        lines = ",\n".join(f"  {json.dumps(entry)}" for entry in history)
        text = json.dumps({**state, "log_history": 0}, indent=1)
        text = text.replace('"log_history": 0', f'"log_history": [\n{lines}\n ]')
        (out / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
