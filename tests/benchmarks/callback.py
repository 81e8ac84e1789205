"""What watching a Trainer costs: the same steps with and without pilot, in alternating pairs.

    python -m tests.benchmarks.callback [--pairs 5] [--steps 30] [--rows 8] [--only callback]

The bundled Llama is fine-tuned by a Trainer: once as it is, once with ``pilot.PilotCallback``, once
under pilot's engine (what a pilot's arm runs in), both with their records on disk. All runs are of
one process, on the same rows, and take turns, so the machine's mood hits them alike. Seconds of the
process are counted (its CPU time, which waiting for others does not lengthen) and shown beside
those of the wall; the first two steps of a run are left out. The ratio of a pair is the median
over its steps, each against the plain run's same step, which has the same rows. Prints every pair
and the medians of their ratios; nothing is asserted. The limit is 3 % of a step of at least 80 ms.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

WARM_STEPS = 2


def make_rows(count: int) -> tuple[list[dict[str, list[int]]], Callable[[], Any]]:
    """Rows of the bundled pairs, tokenized, and what builds the bundled model."""
    from pilot.recipe import RecipeHandle, find_module

    handle = RecipeHandle(
        module_path=find_module("llama_ft", Path.cwd()),
        settings={"name": "llama_ft", "module": "llama_ft"},
        sequence_length=256,
        seed=0,
    )
    recipe = handle.build()
    rows = [
        {"input_ids": row.input_ids.tolist(), "labels": row.labels.tolist()}
        for row in (recipe.train[index] for index in range(count))
    ]
    return rows, lambda: recipe.build_model("full")


def collate(rows: Sequence[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Rows padded on the right."""
    width = max(len(row["input_ids"]) for row in rows)
    masked = [{**row, "attention_mask": [1] * len(row["input_ids"])} for row in rows]
    fill = {"input_ids": 0, "labels": -100, "attention_mask": 0}
    return {
        key: torch.tensor([row[key] + [value] * (width - len(row[key])) for row in masked])
        for key, value in fill.items()
    }


def make_trainer(folder: Path, rows: Any, model: Any, size: int, steps: int) -> tuple[Any, Any]:
    """A Trainer, and the clock that notes the end of each of its steps."""
    from transformers import Trainer, TrainerCallback, TrainingArguments
    from transformers.trainer_callback import PrinterCallback

    class Clock(TrainerCallback):
        cpu: list[float] = []
        wall: list[float] = []

        def on_step_end(self, *args: Any, **more: Any) -> None:
            self.cpu.append(time.process_time())
            self.wall.append(time.perf_counter())

    clock = Clock()
    clock.cpu, clock.wall = [], []
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        learning_rate=1e-3,
        per_device_train_batch_size=size,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        seed=7,
    )
    trainer = Trainer(
        model=model, args=arguments, train_dataset=rows, data_collator=collate, callbacks=[clock]
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, clock


def run_plain(trainer: Any, folder: Path) -> None:
    """The Trainer as it is."""
    trainer.train()


def run_callback(trainer: Any, folder: Path) -> None:
    """With the callback that a user adds."""
    import pilot

    trainer.add_callback(pilot.PilotCallback(folder / "records", validation_rows=0))
    trainer.train()


def run_engine(trainer: Any, folder: Path) -> None:
    """As a pilot's arm runs it, without validations and checkpoints."""
    from pilot.config import validate
    from pilot.engines.base import Program, StepRequest
    from pilot.engines.hf.arguments import tree_of
    from pilot.engines.recorder import Recorder
    from pilot.engines.transformers import TransformersEngine
    from pilot.folder import ArmFolder
    from pilot.records import Outcome

    steps = trainer.args.max_steps
    (folder / "arm").mkdir()
    recorder = Recorder(ArmFolder(folder / "arm"), 1)
    config = validate(tree_of(trainer, "bench", steps))
    engine = TransformersEngine(trainer, config, planned=[], first_step=1, observer=recorder)

    def program() -> Program:
        while engine.step < steps:
            yield StepRequest(learning_rate=1e-3)
        engine.flush()
        return Outcome(status=Outcome.COMPLETED, last_step=engine.step)

    engine.run(program())
    recorder.close()


def step_secs(run: Callable[..., None], rows: Any, model: Any, options: Any) -> dict[str, Any]:
    """CPU and wall seconds of every step but the first ones."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        trainer, clock = make_trainer(folder, rows, model, options.rows, options.steps + WARM_STEPS)
        gc.collect()
        run(trainer, folder)
    times = {"cpu": clock.cpu, "wall": clock.wall}
    return {kind: np.diff(found[WARM_STEPS - 1 :]) for kind, found in times.items()}


def main() -> None:
    """Run the pairs and print one line each, then the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rows", type=int, default=8, help="rows of a batch: the step's length")
    parser.add_argument("--only", choices=("callback", "engine"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows, build = make_rows(600)
    watched = {"callback": run_callback, "engine": run_engine}
    watched = {name: run for name, run in watched.items() if options.only in (None, name)}
    step_secs(run_plain, rows, build(), options)  # the first run loads and warms
    for name, run in watched.items():
        ratios: dict[str, list[float]] = {"cpu": [], "wall": []}
        for pair in range(options.pairs):
            order = (run_plain, run) if pair % 2 == 0 else (run, run_plain)
            secs = {one: step_secs(one, rows, build(), options) for one in order}
            for kind, found in ratios.items():
                found.append(float(np.median(secs[run][kind] / secs[run_plain][kind])))
            plain, seen = (1000 * np.median(secs[one]["cpu"]) for one in (run_plain, run))
            print(
                f"{name} pair {pair + 1}: plain {plain:.1f} ms of CPU a step, "
                f"watched {seen:.1f} ms: {100 * (ratios['cpu'][-1] - 1):+.2f} % "
                f"(wall {100 * (ratios['wall'][-1] - 1):+.2f} %)",
                flush=True,
            )
        medians = {kind: 100 * (statistics.median(found) - 1) for kind, found in ratios.items()}
        print(f"{name}: median {medians['cpu']:+.2f} % of CPU, {medians['wall']:+.2f} % of wall")


if __name__ == "__main__":
    main()
