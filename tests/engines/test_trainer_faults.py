"""What is wrong in the user's Trainer is found, with its place, step and rows; pilot goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pilot.engines.hf.build import build_trainer
from pilot.errors import RecipeFailure, UsageError
from pilot.experiments import movement
from pilot.records import StepRecord
from tests.engines.trainer_faults import (
    FAULTS,
    STEP,
    ClipsByTorch,
    ClipsInItsStep,
    faulty,
    with_callback,
)
from tests.engines.trainers import attach, make_trainer, run_steps


def records_of(name: str, folder: Path, steps: int = STEP + 3) -> list[StepRecord]:
    """The records of a faulty run."""
    return run_steps(attach(faulty(name, folder)), steps)


@pytest.mark.parametrize(
    ("name", "loss", "grads", "later"),
    [
        ("nan_loss_once", False, True, True),
        ("inf_loss_once", False, True, True),
        ("nan_gradients", True, False, False),
    ],
)
def test_what_is_not_finite_is_recorded_though_the_log_hides_it(
    tmp_path: Path, name: str, loss: bool, grads: bool, later: bool
) -> None:
    trainer = faulty(name, tmp_path)
    records = run_steps(attach(trainer), STEP + 3)
    wrong = records[STEP - 1]
    assert (wrong.finite_loss, wrong.finite_grads) == (loss, grads)
    assert all(r.finite_loss and r.finite_grads and r.finite_params for r in records[: STEP - 1])
    assert all((r.finite_loss and r.finite_params) is later for r in records[STEP:])
    logged = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    assert all(value == value and abs(value) != float("inf") for value in logged)


def test_the_true_loss_where_the_log_is_a_mean(tmp_path: Path) -> None:
    settings = {"dropout": 0.2, "gradient_accumulation_steps": 3}
    every = run_steps(attach(make_trainer(tmp_path, **settings)), 6)
    seldom = run_steps(attach(make_trainer(tmp_path, logging_steps=5, **settings)), 6)
    assert seldom == every


def test_the_loss_is_the_trainers_with_smoothed_labels(tmp_path: Path) -> None:
    settings = {"label_smoothing_factor": 0.2, "gradient_accumulation_steps": 3}
    plain = make_trainer(tmp_path, max_steps=4, **settings)
    plain.train()
    logs = [log for log in plain.state.log_history if "loss" in log]
    records = run_steps(attach(make_trainer(tmp_path, max_steps=4, **settings)), 4)
    assert [r.loss for r in records] == pytest.approx([log["loss"] for log in logs], rel=1e-6)
    assert [r.grad_norm for r in records] == [log["grad_norm"] for log in logs]
    unsmoothed = run_steps(attach(make_trainer(tmp_path, gradient_accumulation_steps=3)), 4)
    counts = [r.num_supervised_tokens for r in records]
    assert counts == [r.num_supervised_tokens for r in unsmoothed]


def test_rows_without_a_label(tmp_path: Path) -> None:
    assert not any(r.finite_loss for r in records_of("all_masked", tmp_path))
    records = records_of("most_masked", tmp_path, 8)
    empty = [r for r in records if not r.num_supervised_tokens]
    assert empty and all(r.finite_loss == bool(r.num_supervised_tokens) for r in records)


RAISED: dict[str, tuple[str, int | None, str]] = {
    "frozen": ("build", None, "everything is frozen"),
    "collator": ("collate", 19, "gone"),  # the loader draws one batch ahead
    "dataset": ("collate", 13, "row 20 is gone"),
    "loss_raises": ("training_step", STEP, "shapes differ"),
    "loss_tuple": ("training_step", STEP, "tuple"),
    "loss_detached": ("training_step", STEP, "does not require grad"),
    "loss_number": ("training_step", STEP, "float"),
    "loss_none": ("training_step", STEP, "NoneType"),
    "training_step_number": ("training_step", 1, "float"),
    "out_of_memory": ("training_step", STEP, "out of memory"),
    "out_of_memory_smaller_batch": ("training_step", STEP, "out of memory"),
    "system_exit": ("training_step", STEP, "SystemExit"),
    "interrupt": ("training_step", STEP, "KeyboardInterrupt"),
    "optimizer": ("optimizer", STEP, "state is gone"),
    "callback_stops": ("callback", STEP, f"ended by itself after step {STEP} of 60"),
    "callback_stops_at_log": ("callback", STEP, f"ended by itself after step {STEP} of 60"),
    "callback_raises": ("callback", STEP, "callback"),
    "callback_raises_at_epoch": ("callback", 8, "callback"),
    "callback_raises_at_start": ("build", 0, "callback"),
}


@pytest.mark.parametrize("name", RAISED)
def test_what_raises_is_an_outcome_with_its_place(tmp_path: Path, name: str) -> None:
    where, step, text = RAISED[name]
    engine = attach(faulty(name, tmp_path))
    with pytest.raises(RecipeFailure, match=text) as caught:
        run_steps(engine, 30)
    failure = caught.value
    assert (failure.where, failure.step) == (where, step)
    assert failure.out_of_memory is name.startswith("out_of_memory")
    engine.flush()
    assert [r.step for r in engine.observer.steps] == list(range(1, engine.step + 1))
    if where in ("collate", "training_step", "optimizer"):
        assert len(failure.row_ids) == 4 and failure.traceback_text
        assert 20 in failure.row_ids if name == "dataset" else True


def test_a_broken_evaluation_is_an_outcome(tmp_path: Path) -> None:
    engine = attach(faulty("evaluation", tmp_path))
    with pytest.raises(RecipeFailure, match="no such metric") as caught:
        run_steps(engine, 1, before=lambda: engine.request_validation("before"))
    assert caught.value.where.startswith("validation") and len(caught.value.row_ids) == 1


def test_the_rates_of_a_hasty_scheduler_are_those_that_it_gave(tmp_path: Path) -> None:
    found = [r.learning_rate for r in records_of("hasty_scheduler", tmp_path)]
    planned = run_steps(attach(make_trainer(tmp_path, gradient_accumulation_steps=2)), 24)
    rates = {r.step: r.learning_rate for r in planned}
    assert found == [rates[1 + 3 * (step - 1) + 2] for step in range(1, len(found) + 1)]


def test_a_step_that_misses_half_of_the_tensors(tmp_path: Path) -> None:
    engine = attach(faulty("half_optimizer", tmp_path))
    before, evidence = movement.start_weights(engine), []
    run_steps(engine, 4, after=lambda: evidence.append(movement.measure(engine, before)))
    named = [name for name, _ in engine.model.named_parameters()]
    assert {row["name"] for row in evidence[-1].values["still"]} == set(named[1::2])


@pytest.mark.parametrize("kind", [ClipsInItsStep, ClipsByTorch])
def test_norms_are_those_before_the_own_clipping(tmp_path: Path, kind: Any) -> None:
    limit = 0.0 if kind is ClipsInItsStep else 1.0
    records = run_steps(attach(make_trainer(tmp_path, kind=kind, max_grad_norm=limit)), 4)
    plain = run_steps(attach(make_trainer(tmp_path, max_grad_norm=0.5)), 4)
    for one, other in zip(records, plain, strict=True):
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-5) and one.grad_norm > 0.5
        assert one.clip_coef == pytest.approx(other.clip_coef, rel=1e-5)


def test_a_clipping_that_does_nothing_is_recorded_as_none(tmp_path: Path) -> None:
    records = records_of("clips_nothing", tmp_path, 4)
    assert all(record.grad_norm > 0.1 and record.clip_coef == 1.0 for record in records)


def test_gradients_that_are_lost_are_seen(tmp_path: Path) -> None:
    norms = [record.grad_norm for record in records_of("no_gradients", tmp_path)]
    assert all(norms[: STEP - 1]) and not any(norms[STEP - 1 :])


def test_a_loop_of_its_own_is_refused_before_it_trains(tmp_path: Path) -> None:
    trainer = faulty("trains_by_itself", tmp_path)
    with pytest.raises(UsageError, match="TrainsByItself.train.. trains in a loop of its own"):
        run_steps(attach(trainer), 3)
    assert trainer.num_trained == 0 and not trainer.model._forward_pre_hooks


def test_gradients_are_unscaled_once_before_they_are_measured(tmp_path: Path) -> None:
    """A CPU has no fp16 training of its own: the scaler is put where a GPU's would be."""

    def scale(trainer: Any) -> Any:
        accelerator = trainer.accelerator
        accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        accelerator.native_amp = True
        accelerator.state._mixed_precision = "fp16"
        return trainer

    def begin(args: Any, state: Any, control: Any, optimizer: Any = None, **more: Any) -> None:
        optimizer.scaler = made[-1].accelerator.scaler

    made: list[Any] = []
    kind = with_callback("on_train_begin", begin)
    settings: dict[str, Any] = {"gradient_accumulation_steps": 3, "optim": "adamw_torch"}
    try:
        made.append(scale(make_trainer(tmp_path, kind=kind, **settings)))
        made[-1].train()
        logs = [log for log in made[-1].state.log_history if "loss" in log]
        made.append(scale(make_trainer(tmp_path, kind=kind, **settings)))
        records = run_steps(attach(made[-1]), 6)
    finally:
        made[0].accelerator.state._mixed_precision = "no"
    assert [r.grad_norm for r in records] == [log["grad_norm"] for log in logs[:6]]
    assert [r.loss for r in records] == pytest.approx([log["loss"] for log in logs[:6]], rel=1e-6)
    assert {r.loss_scale for r in records} == {1024.0} and not any(r.step_skipped for r in records)
    plain = run_steps(attach(make_trainer(tmp_path, **settings)), 6)
    assert [r.grad_norm for r in records] == pytest.approx([r.grad_norm for r in plain], rel=1e-3)


def test_early_stopping_is_left_out(tmp_path: Path) -> None:
    """It lives on the Trainer's own evaluations, and refuses to begin without them."""
    script = "from tests.engines.trainer_faults import stopping_early\n"
    script += "def build_trainer():\n    return stopping_early('theirs')\n"
    (tmp_path / "script.py").write_text(script)
    built = build_trainer("script.py", tmp_path, tmp_path / "scratch", {})
    assert len(run_steps(attach(built.trainer), 3)) == 3


def test_every_fault_is_tested() -> None:
    others = {"nan_loss_once", "inf_loss_once", "nan_gradients", "all_masked", "most_masked"}
    others |= {"hasty_scheduler", "half_optimizer", "evaluation", "unlabelled"}
    others |= {"clips_nothing", "no_gradients", "trains_by_itself", "drawn_again"}
    assert set(FAULTS) == set(RAISED) | others
