"""Faults of a learning-rate schedule, planted in a user's Trainer and found by the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import pilot
from pilot.judge import Judgement, judge, load_gates
from pilot.view import load
from tests.engines.test_hf_rates import OBJECTS, adam
from tests.engines.trainers import make_model, make_trainer

STEPS = 16


def judged(folder: Path, trainer: Any, callbacks: tuple[Any, ...] = ()) -> Judgement:
    """Train under a PilotCallback and judge its folder."""
    trainer.add_callback(pilot.PilotCallback(folder / "records", validation_rows=0))
    for callback in callbacks:
        trainer.add_callback(callback)
    trainer.train()
    view = load(folder / "records")
    return judge(view, load_gates(view))


def gate(judgement: Judgement) -> dict[str, Any]:
    return next(g for g in judgement.verdict["gates"] if g["name"] == "schedule")


def run(folder: Path, callbacks: tuple[Any, ...] = (), **arguments: Any) -> Judgement:
    values = {"max_steps": STEPS, "warmup_steps": 4, **arguments}
    return judged(folder, make_trainer(folder, **values), callbacks)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("cosine", {}),
        ("cosine", {"num_cycles": 1.5}),
        ("cosine_with_restarts", {"num_cycles": 2}),
        ("polynomial", {"power": 3.0}),
        ("constant", {}),
    ],
)
def test_right_schedules_pass(tmp_path: Path, kind: str, settings: dict[str, Any]) -> None:
    judgement = run(tmp_path, lr_scheduler_type=kind, lr_scheduler_kwargs=settings)
    assert gate(judgement)["status"] == "pass"
    assert gate(judgement)["sentence"] == "the learning rate is the planned one at 16 steps"
    view = load(tmp_path / "records")
    formula = kind in ("cosine", "constant") and not settings
    assert view.plan.schedule.kind == (kind if formula else "trainer")
    assert view.baseline is not None
    for record in view.baseline.steps:
        assert record.learning_rate == view.plan.schedule.learning_rate_at(record.step)


@pytest.mark.parametrize("kind", ["cosine", "polynomial"])
@pytest.mark.parametrize("accumulate", [2, 3])
def test_stepped_per_micro_batch(tmp_path: Path, kind: str, accumulate: int) -> None:
    from transformers import Trainer

    class Hasty(Trainer):
        def training_step(self, *args: Any, **more: Any) -> Any:
            loss = super().training_step(*args, **more)
            self.lr_scheduler.step()
            return loss

    judgement = run(
        tmp_path, kind=Hasty, gradient_accumulation_steps=accumulate, lr_scheduler_type=kind
    )
    assert judgement.word == "NO-GO" and judgement.verdict["cause"]["category"] == "implementation"
    why = judgement.verdict["why"]
    assert why.startswith("schedule: the learning rate at step 1 is 0.00"), why
    assert f"stepped {accumulate + 1} times per optimizer step: once per micro-batch" in why


def test_stepped_at_every_substep(tmp_path: Path) -> None:
    """A callback: all micro-batches but the last of a step."""
    from transformers import TrainerCallback

    class Substep(TrainerCallback):
        def on_substep_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            more["lr_scheduler"].step()

    judgement = run(tmp_path, (Substep(),), gradient_accumulation_steps=3)
    assert judgement.word == "NO-GO"
    assert "stepped 3 times per optimizer step: once per micro-batch" in judgement.verdict["why"]


def test_never_stepped(tmp_path: Path) -> None:
    from transformers import TrainerCallback

    class Stuck(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            more["lr_scheduler"].step = lambda *rest: None

    judgement = run(tmp_path, (Stuck(),), warmup_steps=0)
    assert judgement.word == "NO-GO"
    assert "the scheduler is never stepped" in judgement.verdict["why"]


@pytest.mark.parametrize("event", ["on_step_begin", "on_pre_optimizer_step"])
def test_a_callback_that_sets_the_rate(tmp_path: Path, event: str) -> None:
    """Whether it stands before or behind pilot's own callback."""
    from transformers import TrainerCallback

    class Sets(TrainerCallback):
        pass

    def set_rate(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step >= 8:
            for group in more["optimizer"].param_groups:
                group["lr"] = 5e-3

    setattr(Sets, event, set_rate)
    judgement = run(tmp_path, (Sets(),))
    assert judgement.word == "NO-GO"
    assert "at step 9 is 0.005, the planned one is" in judgement.verdict["why"]
    assert "callbacks that set the rate" in judgement.verdict["next"]


def test_what_reacts_to_metrics_is_not_measured(tmp_path: Path) -> None:
    judgement = run(
        tmp_path, lr_scheduler_type="reduce_lr_on_plateau", eval_strategy="steps", eval_steps=4,
        lr_scheduler_kwargs={"patience": 0, "factor": 0.5},
    )  # fmt: skip
    assert gate(judgement)["status"] == "not_measured"
    lines = " ".join(judgement.verdict["not_measured"])
    assert "ReduceLROnPlateau reacts to metrics" in lines


@pytest.mark.parametrize("name", ["one_cycle", "sequence"])
def test_a_given_scheduler(tmp_path: Path, name: str) -> None:
    model = make_model()
    optimizer = adam(model, 1e-2, 1e-1)
    trainer = make_trainer(
        tmp_path, model=model, optimizers=(optimizer, OBJECTS[name](optimizer)), max_steps=24
    )
    judgement = judged(tmp_path, trainer)
    assert gate(judgement)["status"] == "pass"


def test_a_resume_that_forgets_the_schedule(tmp_path: Path) -> None:
    """The second attempt begins its warm-up anew: the first one's plan is the plan."""
    settings = {"max_steps": STEPS, "warmup_steps": 4, "save_strategy": "steps", "save_steps": 8}
    assert gate(judged(tmp_path, make_trainer(tmp_path / "a", **settings)))["status"] == "pass"
    checkpoint = tmp_path / "a" / "checkpoint-8"
    whole = judged(tmp_path, _Resumed(make_trainer(tmp_path / "a", **settings), checkpoint))
    assert gate(whole)["status"] == "pass"
    (checkpoint / "scheduler.pt").unlink()
    again = judged(tmp_path, _Resumed(make_trainer(tmp_path / "a", **settings), checkpoint))
    assert again.word == "NO-GO"
    assert "the learning rate at step 9" in again.verdict["why"]


class _Resumed:
    """A Trainer that is resumed where it is asked to train."""

    def __init__(self, trainer: Any, checkpoint: Path) -> None:
        self._trainer, self._checkpoint = trainer, checkpoint

    def add_callback(self, callback: Any) -> None:
        self._trainer.add_callback(callback)

    def train(self) -> None:
        self._trainer.train(resume_from_checkpoint=str(self._checkpoint))


def test_a_table_from_the_middle_of_a_run(tmp_path: Path) -> None:
    """The callback is new, the run is not: what came before is not known, and not needed."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    settings = {"max_steps": STEPS, "save_strategy": "steps", "save_steps": 8}
    first = make_trainer(tmp_path / "a", model=model, optimizers=(optimizer, scheduler), **settings)
    first.train()
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    second = make_trainer(
        tmp_path / "a", model=model, optimizers=(optimizer, scheduler), **settings
    )
    judgement = judged(tmp_path, _Resumed(second, tmp_path / "a" / "checkpoint-8"))
    assert gate(judgement)["sentence"] == "the learning rate is the planned one at 8 steps"
