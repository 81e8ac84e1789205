"""Trainers whose interrupted run must go on as if nothing had happened, and the process that does.

    python -m tests.engines.resume_cases FOLDER CASE STEP [CASE STEP ...]

reads the state after STEP of each CASE from FOLDER and writes the records of the next 20 steps.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pilot import checkpoint
from pilot.jsonl import to_json
from pilot.records import StepRecord
from tests.engines.trainers import TRAIN, attach, collate, make_rows, make_trainer, run_steps

NEXT = 20
# Three micro-batches a step, eight an epoch: step 7 begins one, 8 is within, 9 ends it, shortened.
BASE: dict[str, Any] = {"dropout": 0.2, "gradient_accumulation_steps": 3}


def masking(rows: Sequence[Any]) -> dict[str, torch.Tensor]:
    """A collator that draws from all three generators."""
    batch = collate(rows)
    shape = batch["input_ids"].shape
    chosen = torch.rand(shape) < 0.2
    batch["input_ids"] = torch.where(chosen, torch.randint(6, 300, shape), batch["input_ids"])
    if random.random() < 0.5:
        batch["labels"][:, -1] = -100
    if np.random.rand() < 0.5:
        batch["input_ids"][:, 0] = 5
    return batch


class Shifted(list[Any]):
    """Rows that are another thing each time they are read."""

    def __getitem__(self, index: Any) -> Any:
        row, shift = super().__getitem__(index), int(torch.randint(3, ()))
        return {**row, "input_ids": [6 + (token + shift) % 300 for token in row["input_ids"]]}


def _trainer(**settings: Any) -> Callable[[Path], Any]:
    return lambda folder: make_trainer(folder, **{**BASE, **settings})


def _sft(**settings: Any) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        from tests.engines.trl_trainers import make_trl

        return make_trl("sft", folder, **{**BASE, **settings})

    return make


CASES: dict[str, Callable[[Path], Any]] = {
    "trainer": _trainer(),
    "trainer_one_batch": _trainer(gradient_accumulation_steps=1),
    "sft": _sft(),
    "sft_defaults": _sft(bf16=True, gradient_checkpointing=True),
    "random_collator": _trainer(collator=masking),
    "random_collator_one_batch": _trainer(collator=masking, gradient_accumulation_steps=1),
    "random_collator_in_workers": _trainer(collator=masking, dataloader_num_workers=2),
    "workers": _trainer(dataloader_num_workers=2),
    "random_rows": _trainer(train=Shifted(TRAIN)),
    "grouped_by_length": _trainer(
        train_sampling_strategy="group_by_length", collator=masking, gradient_accumulation_steps=1
    ),
    "rebalanced": _trainer(train_sampling_strategy="batch_rebalance"),
    "drop_last": _trainer(train=make_rows(35), dataloader_drop_last=True),
    "short_last_batch": _trainer(train=make_rows(37)),
    "neftune": _trainer(neftune_noise_alpha=5.0),
    "checkpointing": _trainer(gradient_checkpointing=True),
    "seldom_logged": _trainer(logging_steps=7, include_num_input_tokens_seen="all"),
    "adafactor_lora_bf16": _trainer(optim="adafactor", lora=True, bf16=True),
}


def undisturbed(case: str, folder: Path, kept: Sequence[int]) -> list[StepRecord]:
    """The run as it goes, with its states after the steps ``kept`` in pilot's own files."""
    engine = attach(CASES[case](folder / "out"))

    def keep() -> None:
        if engine.step in kept:
            checkpoint.save(folder / case, engine.step, engine.snapshot(), reasons=("kept",))

    return run_steps(engine, max(kept) + NEXT, after=keep)


def resumed(case: str, folder: Path, step: int) -> list[StepRecord]:
    """The steps behind the state after ``step``, in a process that has done nothing else."""
    found = {state.step: state for state in checkpoint.find(folder / case)}
    engine = attach(CASES[case](folder / "out"))
    torch.rand(3), random.random(), np.random.rand()  # a fresh process may be anywhere
    engine.restore(checkpoint.load(found[step]))
    return run_steps(engine, step + NEXT)


def main() -> None:
    """Go on from the states that the command line names."""
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    for case, step in zip(words[::2], words[1::2], strict=True):
        lines = [to_json(record) for record in resumed(case, folder, int(step))]
        (folder / f"{case}.{step}.jsonl").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
