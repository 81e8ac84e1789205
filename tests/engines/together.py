"""What two processes of one run do, for ``test_together.py``: started by torchrun, on 127.0.0.1.

Every case is run by both processes; process 0 writes what it found, as JSON, into the folder given.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import pilot
from pilot.engines import seeds
from pilot.engines.base import Engine, Program, StepRequest
from pilot.engines.hf.ranks import in_order
from pilot.engines.hf.rows import planned_batches
from pilot.engines.leader import follow, lead
from pilot.engines.state import copy_state
from pilot.engines.team import team
from pilot.engines.transformers import TransformersEngine
from pilot.experiments import determinism
from pilot.jsonl import to_json
from pilot.records import Outcome, StepRecord
from tests.engines.collect import Collect
from tests.engines.trainers import TRAIN, collate, config_for, make_rows, make_trainer

STEPS = 16
ODD = make_rows(33, seed=3)  # the last batch of an epoch is short
SAMPLERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "odd": {"train": ODD},
    "dropped": {"train": ODD, "dataloader_drop_last": True},
    "uneven": {"train": ODD, "accelerator_config": {"even_batches": False}},
    "split": {"train": ODD, "accelerator_config": {"split_batches": True}},
    "by_length": {"train_sampling_strategy": "group_by_length"},
    "rebalanced": {"train_sampling_strategy": "batch_rebalance", "dataloader_drop_last": True},
    "workers": {"dataloader_num_workers": 1},
}


def engine_of(trainer: Any, observer: Any = None) -> TransformersEngine:
    """The engine of this process on ``trainer``."""
    state, together = seeds.random_state(), team()
    planned = planned_batches(trainer, trainer.get_train_dataloader(), 40)
    seeds.set_random_state(state)
    assert together is not None
    rows = [in_order(b) for b in zip(*together.gather(planned), strict=True)]
    return TransformersEngine(
        trainer,
        config_for(trainer),
        planned=planned,
        planned_rows=rows,
        first_step=1,
        observer=observer or Collect(),
    )


def drive(
    engine: TransformersEngine,
    program: Callable[[Engine], Program],
    before: Callable[[Engine], object] = lambda engine: None,
) -> list[StepRecord]:
    """Run ``program`` in process 0, the others follow; returns the records of this process."""
    together = team()
    assert together is not None
    if together.rank:
        follow(engine, together)
    else:
        leader = lead(engine)
        before(leader)
        leader.run(program(leader))
    found: list[StepRecord] = engine.observer.steps  # type: ignore[attr-defined]
    return found


def up_to(last: int, after: Callable[[Engine], object] = lambda engine: None) -> Any:
    """A program that trains up to step ``last``."""

    def program(engine: Engine) -> Program:
        while engine.step < last:
            yield StepRequest(learning_rate=0.0)
            after(engine)
        engine.flush()
        return Outcome(status=Outcome.COMPLETED, last_step=engine.step)

    return program


def same_as_one(folder: Path, accumulate: int) -> Any:
    """Records, validations and the determinism floor of two processes with two rows each."""
    trainer = make_trainer(
        folder, per_device_train_batch_size=2, gradient_accumulation_steps=accumulate
    )
    engine = engine_of(trainer)
    spread: list[float] = []

    def program(leader: Engine) -> Program:
        found = determinism.measure(leader, leader.rows_of(1))
        spread.append(float(found.values["relative_spread"]))
        leader.try_rows((3, 5))
        leader.request_validation("before")
        rest: Program = up_to(STEPS)(leader)
        return (yield from rest)

    records = drive(engine, program)
    losses = [v.loss_sums for v in engine.observer.validations]  # type: ignore[attr-defined]
    return {
        "steps": records,
        "spread": spread,
        "validations": losses,
        "planned": all(engine.rows_of(r.step) == r.row_ids for r in records),
    }


def resumed(folder: Path) -> Any:
    """A state of step 9 (the end of an epoch, with a short step) goes on in fresh Trainers."""
    settings = {"dropout": 0.2, "gradient_accumulation_steps": 3, "per_device_train_batch_size": 2}
    states: list[Any] = []

    def keep(leader: Engine) -> None:
        if leader.step in (8, 9):
            states.append(copy_state(leader.snapshot()))

    expected = list(drive(engine_of(make_trainer(folder, **settings)), up_to(20, keep)))
    found = []
    for kept in (0, 1):
        engine = engine_of(make_trainer(folder, **settings))
        going_on = drive(engine, up_to(20), before=lambda leader, k=kept: leader.restore(states[k]))
        found.append(going_on == expected[8 + kept :])
    differ = (
        len({tuple(s["random"]["torch"].tolist()) for s in states[0]["of_processes"]})
        if states
        else 0
    )
    return {"equal": found, "steps": len(expected), "random_states": differ}


def branched(folder: Path) -> Any:
    """A cool-down, then from the end of the peak again: the steps of a run without it."""
    settings = {"dropout": 0.2, "gradient_accumulation_steps": 3, "per_device_train_batch_size": 2}
    expected = list(drive(engine_of(make_trainer(folder, **settings)), up_to(12)))

    def program(leader: Engine) -> Program:
        yield from up_to(8)(leader)
        state = copy_state(leader.snapshot())
        for rate in (3e-3, 2e-3):
            yield StepRequest(learning_rate=rate, forced=True)
        leader.flush()
        leader.restore(state)
        return (yield from up_to(12)(leader))

    steps = drive(engine_of(make_trainer(folder, **settings)), program)
    rows = [r.row_ids for r in steps[8:10]] == [r.row_ids for r in expected[8:10]]
    return {"rows": rows, "again": steps[10:] == expected[8:], "steps": len(steps)}


def seen_rows(folder: Path, name: str) -> Any:
    """Row ids of a record beside the rows that the processes really collated, by their content."""
    settings = dict(SAMPLERS[name])
    data = settings.pop("train", TRAIN)
    ids = {tuple(row["input_ids"]): index for index, row in enumerate(data)}
    drawn: list[list[int]] = []

    def noting(rows: Any) -> Any:
        drawn.append([ids[tuple(row["input_ids"])] for row in rows])
        return collate(rows)

    noting_collator = collate if name == "workers" else noting  # it would note in the worker
    trainer = make_trainer(
        folder,
        train=data,
        collator=noting_collator,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        **settings,
    )
    engine = engine_of(trainer)
    records = drive(engine, up_to(12))
    together = team()
    assert together is not None
    own = [list(batch) for step in range(1, 13) for batch in engine.loop.batches[step]]
    seen = together.gather(drawn[: len(own)] == own or name == "workers")
    steps = together.gather([engine.loop.batches[step] for step in range(1, 13)])
    expected = [list(in_order(batches)) for batches in zip(*steps, strict=True)]
    planned = [list(engine.rows_of(r.step)) == list(r.row_ids) for r in records]
    return {
        "seen": seen,
        "records": [list(r.row_ids) for r in records] == expected,
        "planned": all(planned),
        "lengths": [len(r.row_ids) for r in records],
    }


def called_back(folder: Path) -> Any:
    """``PilotCallback`` in both processes; where the others have written anything."""
    trainer = make_trainer(folder / "their", per_device_train_batch_size=2, max_steps=10)
    trainer.add_callback(pilot.PilotCallback(folder / "records", validation_rows=8))
    trainer.train()
    return {"logged": [log for log in trainer.state.log_history if "loss" in log]}


def main(folder: Path, cases: Sequence[str]) -> None:
    """Run ``cases`` and write what process 0 found."""
    known: dict[str, Callable[[], Any]] = {
        "same_1": lambda: same_as_one(folder / "a", 1),
        "same_3": lambda: same_as_one(folder / "a", 3),
        "resumed": lambda: resumed(folder / "a"),
        "branched": lambda: branched(folder / "a"),
        "callback": lambda: called_back(folder),
        **{f"rows_{name}": lambda n=name: seen_rows(folder / "a", n) for name in SAMPLERS},
    }
    found = {name: known[name]() for name in cases}
    if dist.get_rank() == 0:
        (folder / "found.json").write_text(json.dumps(json.loads(to_json(found))))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2:])
