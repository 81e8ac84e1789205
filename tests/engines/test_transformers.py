"""A real Trainer under pilot: the native engine's numbers, nothing moved, exact states."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from pilot.engines.base import Program, StepRequest
from pilot.engines.state import copy_state
from pilot.errors import RecipeFailure
from pilot.experiments import determinism, longest_sample, movement
from pilot.records import Outcome
from tests.engines.trainers import (
    HELD,
    attach,
    collate,
    config_for,
    make_model,
    make_trainer,
    native,
    run_steps,
)

STEPS = 16


def flat(engine: Any, steps: int) -> list[int]:
    """The planned rows of the first steps."""
    return [row for step in range(1, steps + 1) for row in engine.rows_of(step)]


def plain_numbers(trainer: Any) -> list[tuple[float, float]]:
    """Norm and learning rate of every step, as the Trainer itself logs them."""
    logs = [log for log in trainer.state.log_history if "loss" in log]
    return [(log["grad_norm"], log["learning_rate"]) for log in logs]


@pytest.mark.parametrize(
    ("arguments", "model", "tolerance"),
    [
        ({}, {}, 1e-5),
        ({"max_grad_norm": 0.0, "gradient_accumulation_steps": 2}, {}, 1e-5),
        ({}, {"lora": True}, 1e-5),
        ({"bf16": True}, {}, 5e-3),
    ],
)
def test_the_same_run_as_native(
    tmp_path: Path, arguments: dict[str, Any], model: dict[str, Any], tolerance: float
) -> None:
    """Accumulation divides the epoch evenly here: native has no short last step of an epoch."""
    trainer = make_trainer(tmp_path, **arguments, **model)
    engine = attach(trainer)
    other = native(engine.config, flat(engine, STEPS), **model)
    theirs, mine = run_steps(engine, STEPS), run_steps(other, STEPS)
    exact = ("step", "learning_rate", "num_supervised_tokens", "num_tokens", "longest_tokens")
    for a, b in zip(mine, theirs, strict=True):
        for name in (*exact, "row_ids", "row_hash", "source_counts"):
            assert getattr(a, name) == getattr(b, name), (a.step, name)
        for name in ("loss", "grad_norm", "clip_coef", "param_norm"):
            assert getattr(b, name) == pytest.approx(getattr(a, name), rel=tolerance), a.step
    first = ("loss", "grad_norm")
    if tolerance < 1e-3:
        assert all(
            getattr(mine[0], n) == pytest.approx(getattr(theirs[0], n), rel=1e-6) for n in first
        )
    assert theirs[-1].loss < theirs[0].loss - 0.02


def test_validations_are_those_of_native(tmp_path: Path) -> None:
    engine = attach(make_trainer(tmp_path))
    run_steps(engine, 2, before=lambda: engine.request_validation("before"))
    other = native(engine.config, flat(engine, 2))
    expected, found = other.request_validation("before")[0], engine.observer.validations[0]
    assert found.token_counts == expected.token_counts and len(found.loss_sums) == 8
    assert found.loss_sums == pytest.approx(expected.loss_sums, rel=1e-6)
    assert found.primary and found.loss == pytest.approx(expected.loss, rel=1e-6)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_watched_run_is_the_unwatched_one(tmp_path: Path, accumulate: int) -> None:
    """Dropout on: validations, experiments and snapshots must not move the random state."""
    settings = {"dropout": 0.2, "gradient_accumulation_steps": accumulate}
    plain = make_trainer(tmp_path, **settings, max_steps=12, lr_scheduler_type="constant")
    plain.train()
    watched = make_trainer(tmp_path, **settings, max_steps=12, lr_scheduler_type="constant")
    engine = attach(watched)

    def before() -> None:
        lengths = torch.tensor([len(row["input_ids"]) for row in watched.train_dataset]).numpy()
        longest_sample.measure(engine, lengths, 4)
        assert determinism.measure(engine, engine.rows_of(1)).values["relative_spread"] == 0.0
        engine.request_validation("before")

    def after() -> None:
        engine.request_validation("x")
        engine.snapshot()

    records = run_steps(engine, 12, before=before, after=after)
    assert [(r.grad_norm, r.learning_rate) for r in records] == plain_numbers(plain)
    for a, b in zip(plain.model.parameters(), engine.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert all(engine.rows_of(r.step) == r.row_ids for r in records)


@pytest.mark.parametrize("kept", [8, 9])
def test_a_fresh_process_goes_on_bit_for_bit(tmp_path: Path, kept: int) -> None:
    """Three micro-batches a step, eight an epoch: step 9 ends an epoch with a short step."""
    settings = {"dropout": 0.2, "gradient_accumulation_steps": 3}
    straight = attach(make_trainer(tmp_path, **settings))
    states: list[dict[str, Any]] = []

    def keep() -> None:
        if straight.step == kept:
            states.append(copy_state(straight.snapshot()))

    expected = run_steps(straight, kept + 20, after=keep)
    resumed = attach(make_trainer(tmp_path, **settings))
    resumed.restore(states[0])
    found = run_steps(resumed, kept + 20)
    assert found == expected[kept:] and len(found) == 20


def test_a_branch_goes_back_and_on_exactly(tmp_path: Path) -> None:
    """A cool-down, then from the end of the peak again: the steps of a run without a cool-down."""
    settings = {"dropout": 0.2, "gradient_accumulation_steps": 3}
    expected = run_steps(attach(make_trainer(tmp_path, **settings)), 16)
    engine = attach(make_trainer(tmp_path, **settings))

    def program() -> Program:
        while engine.step < 12:
            yield StepRequest(learning_rate=0.0)
        state = copy_state(engine.snapshot())
        for rate in (3e-3, 2e-3, 1e-3):
            yield StepRequest(learning_rate=rate, forced=True)
        engine.flush()
        engine.restore(state)
        while engine.step < 16:
            yield StepRequest(learning_rate=0.0)
        engine.flush()
        return Outcome(status=Outcome.COMPLETED, last_step=engine.step)

    assert engine.run(program()).last_step == 16
    steps = engine.observer.steps
    assert [r.learning_rate for r in steps[12:15]] == [3e-3, 2e-3, 1e-3]
    assert [r.row_ids for r in steps[12:15]] == [r.row_ids for r in expected[12:15]]
    assert steps[15:] == expected[12:]


def test_a_branch_goes_on_behind_the_end_of_the_full_run(tmp_path: Path) -> None:
    engine = attach(make_trainer(tmp_path, max_steps=4, warmup_steps=0))
    records = run_steps(engine, 6)
    assert [r.step for r in records] == [1, 2, 3, 4, 5, 6]
    assert all(engine.rows_of(r.step) == r.row_ids for r in records)


def test_nothing_lies_in_the_output_folder(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path / "out")
    run_steps(attach(trainer), 3, after=lambda: None)
    assert list((tmp_path / "out").iterdir()) == []


def test_the_loss_that_the_log_hides(tmp_path: Path) -> None:
    from transformers import Trainer

    class Broken(Trainer):
        def compute_loss(self, *args: Any, **more: Any) -> Any:
            loss = super().compute_loss(*args, **more)
            return loss * float("nan") if self.state.global_step == 4 else loss

    trainer = make_trainer(tmp_path, kind=Broken)
    records = run_steps(attach(trainer), 6)
    assert trainer.state.log_history[4]["loss"] == 0.0  # what the user sees
    assert [r.finite_loss for r in records] == [True] * 4 + [False] * 2
    assert not records[4].finite_grads


def test_all_labels_masked_is_nan(tmp_path: Path) -> None:
    def masked(rows: Any) -> Any:
        batch = collate(rows)
        return {**batch, "labels": torch.full_like(batch["labels"], -100)}

    record = run_steps(attach(make_trainer(tmp_path, collator=masked)), 1)[0]
    assert record.num_supervised_tokens == 0 and not record.finite_loss


def test_everything_frozen_is_an_outcome(tmp_path: Path) -> None:
    model = make_model().requires_grad_(False)
    with pytest.raises(RecipeFailure):
        run_steps(attach(make_trainer(tmp_path, model=model)), 1)


def test_a_scheduler_stepped_too_often_shows_in_the_rates(tmp_path: Path) -> None:
    from transformers import Trainer

    class Hasty(Trainer):
        def training_step(self, *args: Any, **more: Any) -> Any:
            loss = super().training_step(*args, **more)
            self.lr_scheduler.step()
            return loss

    trainer = make_trainer(tmp_path, kind=Hasty, gradient_accumulation_steps=2)
    right = run_steps(attach(make_trainer(tmp_path, gradient_accumulation_steps=2)), 5)
    wrong = run_steps(attach(trainer), 5)
    assert [a.learning_rate == b.learning_rate for a, b in zip(right, wrong, strict=True)] == [
        False
    ] * 5


def test_an_optimizer_that_misses_half_of_the_tensors(tmp_path: Path) -> None:
    model = make_model()
    half = list(model.parameters())[::2]
    optimizer = torch.optim.AdamW(half, lr=1e-2)
    engine = attach(make_trainer(tmp_path, model=model, optimizers=(optimizer, None)))
    before = movement.start_weights(engine)
    evidence = []
    program_end = lambda: evidence.append(movement.measure(engine, before))  # noqa: E731
    run_steps(engine, 4, after=program_end)
    still = evidence[-1].values["still"]
    named = [name for name, _ in model.named_parameters()]
    assert {row["name"] for row in still} == set(named[1::2])
    assert all(row["update_over_half_ulp"] > 1.0 for row in still)


def test_an_exception_in_the_collator_has_its_step_and_rows(tmp_path: Path) -> None:
    calls = []

    def failing(rows: Any) -> Any:
        calls.append(rows)
        if len(calls) == 20:
            raise KeyError("gone")
        return collate(rows)

    engine = attach(make_trainer(tmp_path, collator=failing))
    with pytest.raises(RecipeFailure) as caught:
        run_steps(engine, 30)
    failure = caught.value
    assert failure.where == "collate" and isinstance(failure.error, KeyError)
    assert failure.step == 19  # the loader draws one batch ahead
    assert failure.row_ids == engine.rows_of(20)
    assert "failing" in failure.traceback_text


def test_a_failure_of_pilot_is_not_the_users(tmp_path: Path) -> None:
    class OwnFault(Exception):
        pass

    def fail() -> None:
        raise OwnFault

    with pytest.raises(OwnFault):
        run_steps(attach(make_trainer(tmp_path)), 3, after=fail)


def test_two_sets_and_none(tmp_path: Path) -> None:
    sets = {"first": HELD[:4], "second": HELD[4:7]}
    engine = attach(make_trainer(tmp_path, evaluate=sets))
    run_steps(engine, 1, after=lambda: engine.request_validation("x"))
    assert [(v.name, v.primary, len(v.loss_sums)) for v in engine.observer.validations] == [
        ("first", True, 4),
        ("second", False, 3),
    ]


def test_a_changed_argument_is_the_only_change(tmp_path: Path) -> None:
    lower = make_trainer(tmp_path, learning_rate=1e-3)
    one, other = attach(make_trainer(tmp_path)), attach(lower, config_for(lower))
    a, b = run_steps(one, 4), run_steps(other, 4)
    assert [r.row_ids for r in a] == [r.row_ids for r in b] and a[0].loss == b[0].loss
    assert b[3].learning_rate == pytest.approx(a[3].learning_rate / 10)
    assert dataclasses.replace(a[0], relative_update=0.0) == dataclasses.replace(
        b[0], relative_update=0.0
    )
