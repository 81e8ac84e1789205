"""A Trainer on an ``IterableDataset``: measured without row ids, resumed, its end named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pilot.callback import PilotCallback
from pilot.engines.base import Program, StepRequest
from pilot.engines.hf.rows import contents_of
from pilot.engines.hf.workload import TrainerWorkload
from pilot.engines.state import copy_state
from pilot.errors import ConfigError, RecipeFailure
from pilot.judge import judge, load_gates
from pilot.records import Outcome
from pilot.view import load
from tests.engines.trainers import (
    MAX_STEPS,
    TRAIN,
    attach,
    config_for,
    make_trainer,
    native,
    run_steps,
)


class Rows(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """The training rows over and over, or ``limit`` of them once."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit

    def __iter__(self) -> Iterator[Any]:
        count = 0
        while self.limit is None or count < self.limit:
            yield TRAIN[count % len(TRAIN)]
            count += 1


def streaming(folder: Path, limit: int | None = None, **more: Any) -> Any:
    return make_trainer(folder, train=Rows(limit), **more)


def test_the_same_steps_as_native_on_the_same_rows(tmp_path: Path) -> None:
    settings = {"gradient_accumulation_steps": 2}
    engine = attach(streaming(tmp_path, **settings))
    theirs = run_steps(engine, 10)
    other = native(engine.config, [i % len(TRAIN) for i in range(10 * 8)])
    for a, b in zip(run_steps(other, 10), theirs, strict=True):
        for name in ("step", "learning_rate", "num_supervised_tokens", "num_tokens"):
            assert getattr(b, name) == getattr(a, name), (a.step, name)
        assert b.loss == pytest.approx(a.loss, rel=1e-5) and b.row_ids == ()
        assert b.grad_norm == pytest.approx(a.grad_norm, rel=1e-4)
    hashes = [r.row_hash for r in theirs]
    assert hashes[:4] == hashes[4:8] and len(set(hashes)) == 4  # 32 rows, 8 a step


def test_a_fresh_process_goes_on_bit_for_bit(tmp_path: Path) -> None:
    settings = {"dropout": 0.2, "gradient_accumulation_steps": 3}
    straight = attach(streaming(tmp_path, **settings))
    states: list[dict[str, Any]] = []

    def keep() -> None:
        if straight.step == 5:
            states.append(copy_state(straight.snapshot()))

    expected = run_steps(straight, 20, after=keep)
    resumed = attach(streaming(tmp_path, **settings))
    resumed.restore(states[0])
    assert run_steps(resumed, 20) == expected[5:]


def test_a_cool_down_stays_in_the_loop(tmp_path: Path) -> None:
    engine = attach(streaming(tmp_path))

    def program() -> Program:
        for _ in range(6):
            yield StepRequest(learning_rate=0.0)
        for rate in (3e-3, 2e-3, 1e-3):
            yield StepRequest(learning_rate=rate, forced=True)
        engine.flush()
        return Outcome(status=Outcome.COMPLETED, last_step=engine.step)

    assert engine.run(program()).last_step == 9
    assert [r.learning_rate for r in engine.observer.steps[6:]] == [3e-3, 2e-3, 1e-3]


def test_the_end_of_the_rows_is_said(tmp_path: Path) -> None:
    """A dataset that gives its rows once: the Trainer's own words, with the step."""

    class Once(Rows):
        def __init__(self) -> None:
            super().__init__(20)
            self.rows = super().__iter__()

        def __iter__(self) -> Iterator[Any]:
            return self.rows

    engine = attach(make_trainer(tmp_path, train=Once()))
    with pytest.raises(RecipeFailure, match="end of all iterable data") as caught:  # accelerate's
        run_steps(engine, 10)
    assert caught.value.where == "collate" and caught.value.step == 6


def test_a_workload_over_a_stream(tmp_path: Path) -> None:
    trainer = streaming(tmp_path)
    config = config_for(trainer, recipe={"name": "x", "trainer": "train.py"})
    workload = TrainerWorkload(trainer, config, {})
    workload.require_contract()
    assert workload.num_rows is None and not workload.goes_back
    assert workload.facts() == [] and workload.own_order(10) is None
    sets = {audit["set"]: audit["num_rows_checked"] for audit in workload.audit(2048, None)}
    assert sets == {"train": 256, "validation": 12}
    run = {"schedule_steps": None, "epochs": 2.0, "warmup_steps": 3}
    recipe = {"name": "x", "trainer": "train.py"}
    wrong = TrainerWorkload(trainer, config_for(trainer, recipe=recipe, full_run=run), {})
    with pytest.raises(ConfigError) as caught:
        wrong.require_contract()
    (found,) = caught.value.mistakes
    assert found.key == "full_run.epochs" and f"schedule_steps={MAX_STEPS}" in found.remedy


def test_contents_tell_batches_apart() -> None:
    ids = torch.arange(12).reshape(3, 4)
    base = {"input_ids": ids, "x": torch.ones(3), "name": "text"}
    others = [
        {**base, "input_ids": ids.flip(0)},
        {**base, "input_ids": ids.reshape(4, 3)[:, :2]},
        {**base, "x": torch.zeros(3)},
        {**base, "x": torch.ones(3, dtype=torch.bfloat16)},
        {**base, "x": torch.ones(3, dtype=torch.bool)},
        {"input_ids": ids},
    ]
    found = [float(contents_of([batch])) for batch in (base, *others)]
    assert len(set(found)) == len(found)
    assert float(contents_of([base, others[0]])) != float(contents_of([others[0], base]))
    assert all(0 <= value < 2**53 and value == int(value) for value in found)
    assert float(contents_of([])) == 0.0 and float(contents_of([dict(base)])) == found[0]


def test_the_callback_records_a_stream(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    trainer = streaming(tmp_path / "out", max_steps=40, warmup_steps=3)
    trainer.add_callback(PilotCallback(out_dir=folder, validation_rows=8))
    trainer.train()
    view = load(folder)
    assert view.baseline is not None and len(view.baseline.steps) == 40
    assert view.survey["num_train_rows"] is None
    verdict = judge(view, load_gates(view)).verdict
    gates = {gate["name"]: gate["status"] for gate in verdict["gates"]}
    assert gates["coverage"] == "pass", json.dumps(verdict["gates"], indent=1)
    assert any("it is a stream" in line for line in verdict["not_measured"])
    assert not any("never seen" in line for line in verdict["warnings"])
