"""A Trainer without a validation set: which rows are held out, and that they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from pilot.data.held_out import MAX_ROWS, SHARE, UNDRAWN, choose
from pilot.engines import seeds
from pilot.engines.hf.digests import data_sets
from pilot.engines.hf.workload import TrainerWorkload
from pilot.errors import UsageError
from pilot.folder import PilotFolder
from pilot.jsonl import write_json
from tests.engines.test_hf_facts import sft
from tests.engines.trainers import (
    HELD,
    MAX_STEPS,
    Collect,
    collate,
    config_for,
    make_rows,
    make_trainer,
    run_steps,
)

ROWS: Any = None  # the row table: a Trainer's order is its own
SHORT = {"min_peak_steps": 6, "cooldown_steps": 4, "max_extension_steps": 4}


def workload(trainer: Any, folder: PilotFolder | None = None, **sections: Any) -> TrainerWorkload:
    """A Trainer's workload of a short pilot: 9 steps, 4 of cool-down or extension."""
    pilot = {"seed": 7, "validation_rows": 8, **SHORT, **sections.pop("pilot", {})}
    config = config_for(trainer, pilot=pilot, **sections)
    config.recipe["trainer"] = "train.py:build_trainer"
    return TrainerWorkload(trainer, config, {}, folder=folder)


def trained(work: TrainerWorkload, steps: int, validate: bool = True) -> Any:
    """The engine after ``steps`` steps, with a validation before and after."""
    order = work.own_order(steps * 4)
    assert order is not None
    engine = work.make_engine(order=order, first_step=1, observer=Collect())
    before = (lambda: engine.request_validation("before")) if validate else None
    run_steps(engine, steps, before=before)
    return engine


def drawn(engine: Any) -> list[int]:
    return [row for record in engine.observer.steps for row in record.row_ids]


# ---- the choice


def test_undrawn_rows_are_preferred() -> None:
    found = choose(200, np.arange(150), wanted=40, data_seed=0)
    assert found.mode == UNDRAWN and len(found.row_ids) == 40 and min(found.row_ids) >= 150


@pytest.mark.parametrize(
    ("num_rows", "num_drawn", "wanted", "mode", "size"),
    [
        (100_000, 1_000, 256, UNDRAWN, 256),
        (100_000, 1_000, 1_000, UNDRAWN, 1_000),
        (100_000, 1_000, None, UNDRAWN, 256),
        (100, 90, 256, UNDRAWN, 10),  # as many as the share would be
        (100, 91, 256, SHARE, 10),
        (30, 20, 256, UNDRAWN, 10),  # too few for a share, but nothing is lost
        (100_000, 100_000, None, SHARE, MAX_ROWS),
        (100_000, 100_000, 32, SHARE, 32),
        (40, 40, 256, SHARE, 8),
    ],
)
def test_sizes(num_rows: int, num_drawn: int, wanted: int | None, mode: str, size: int) -> None:
    found = choose(num_rows, np.arange(num_drawn), wanted=wanted, data_seed=3)
    assert (found.mode, len(found.row_ids), found.refused) == (mode, size, "")
    assert len(set(found.row_ids)) == size and list(found.row_ids) == sorted(found.row_ids)
    assert found == choose(num_rows, np.arange(num_drawn), wanted=wanted, data_seed=3)
    assert found != choose(num_rows, np.arange(num_drawn), wanted=wanted, data_seed=4) or size == 10


def test_too_few_rows_are_refused() -> None:
    found = choose(39, np.arange(39), wanted=256, data_seed=0)
    assert found.row_ids == () and "39 training rows are too few" in found.refused
    assert "40 are enough" in found.refused


# ---- undrawn


def test_undrawn_rows_change_nothing(tmp_path: Path) -> None:
    rows = make_rows(200)
    plain = trained(workload(make_trainer(tmp_path, train=rows, dropout=0.2)), 13, validate=False)
    work = workload(make_trainer(tmp_path, train=rows, evaluate={}, dropout=0.2))
    said = work.hold_out(PilotFolder(tmp_path), ROWS)
    assert said is not None and said["mode"] == UNDRAWN
    assert work.validation_rows == {"held_out": 32}
    engine = trained(work, 13)
    assert engine.observer.steps == plain.observer.steps
    held = set(np.load(tmp_path / "held_out.npy").tolist())
    assert len(held) == 32 and held.isdisjoint(drawn(engine))
    first = engine.observer.validations[0]
    assert first.primary and first.name == "held_out" and len(first.loss_sums) == 8


def test_a_held_out_row_that_is_drawn_after_all_ends_the_run(tmp_path: Path) -> None:
    work = workload(make_trainer(tmp_path, train=make_rows(200), evaluate={}))
    work.hold_out(PilotFolder(tmp_path), ROWS)
    with pytest.raises(UsageError, match="which is held out for validation"):
        trained(work, 50, validate=False)  # an epoch: beyond what the pilot said it would draw


def test_an_order_by_the_global_state_is_not_trusted(tmp_path: Path) -> None:
    from transformers import Trainer

    class Own(Trainer):
        def get_train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(
                self.train_dataset, batch_size=4, shuffle=True, collate_fn=collate
            )

    work = workload(make_trainer(tmp_path, kind=Own, train=make_rows(200), evaluate=[]))
    assert not work.order_is_fixed()
    said = work.hold_out(PilotFolder(tmp_path), ROWS)
    assert said is not None and said["mode"] == SHARE and said["num_rows"] == 8
    engine = trained(work, 60)
    assert work.trainer.pilot_held_out.members.isdisjoint(drawn(engine))
    assert len(set(drawn(engine))) == 192


def test_planning_leaves_the_users_generator_alone(tmp_path: Path) -> None:
    from transformers import Trainer

    generator = torch.Generator().manual_seed(3)

    class Own(Trainer):
        def get_train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(
                self.train_dataset,
                batch_size=4,
                collate_fn=collate,
                sampler=torch.utils.data.RandomSampler(self.train_dataset, generator=generator),
            )

    work = workload(make_trainer(tmp_path, kind=Own, train=make_rows(200), evaluate=[]))
    before = generator.get_state()
    said = work.hold_out(PilotFolder(tmp_path), ROWS)
    assert (
        said is not None and said["mode"] == UNDRAWN and torch.equal(before, generator.get_state())
    )
    planned = work.own_order(36)
    assert planned is not None and drawn(trained(work, 9)) == planned.tolist()


# ---- share


@pytest.mark.parametrize("kind", ["list", "datasets", "grouped", "epochs", "accumulation"])
def test_a_share_is_not_trained_on(tmp_path: Path, kind: str) -> None:
    rows: Any = make_rows(96)
    more: dict[str, Any] = {}
    if kind == "datasets":
        rows = datasets.Dataset.from_list([{**row, "source": "x"} for row in rows])
    if kind == "grouped":
        more["train_sampling_strategy"] = "group_by_length"
    if kind == "epochs":
        more |= {"max_steps": -1, "num_train_epochs": 2.5}
    if kind == "accumulation":
        more["gradient_accumulation_steps"] = 3
    make = lambda: make_trainer(tmp_path, train=rows, evaluate={}, **more)  # noqa: E731
    pilot = {"min_peak_steps": 200}
    work = workload(make(), pilot=pilot)
    steps = work.max_steps
    said = work.hold_out(PilotFolder(tmp_path), ROWS)
    assert said is not None and said["mode"] == SHARE and said["num_rows"] == 8
    assert steps == 60 and work.max_steps == steps and work.num_rows == 96
    engine = trained(work, steps)
    held = set(np.load(tmp_path / "held_out.npy").tolist())
    assert held == set(range(96)) - set(drawn(engine))
    assert all(engine.rows_of(r.step) == r.row_ids for r in engine.observer.steps)
    assert work.trainer.state.global_step == steps


def test_a_share_skips_rows_in_the_users_own_order(tmp_path: Path) -> None:
    rows = make_rows(96)
    whole = workload(make_trainer(tmp_path, train=rows)).own_order(96)
    work = workload(make_trainer(tmp_path, train=rows, evaluate={}), pilot={"min_peak_steps": 99})
    work.hold_out(PilotFolder(tmp_path), ROWS)
    held, order = np.load(tmp_path / "held_out.npy"), work.own_order(88)
    assert whole is not None and order is not None
    assert order.tolist() == [row for row in whole if row not in held]


def test_every_arm_has_the_same_rows_and_resumes_exactly(tmp_path: Path) -> None:
    rows, folder = make_rows(96), PilotFolder(tmp_path)
    pilot = {"min_peak_steps": 99}
    make = lambda **more: make_trainer(  # noqa: E731
        tmp_path, train=rows, evaluate={}, dropout=0.2, **more
    )
    survey = workload(make(), pilot=pilot)
    write_json(folder.survey, {"held_out": survey.hold_out(folder, ROWS)})
    straight = workload(make(), folder, pilot=pilot)
    order = straight.own_order(200)
    assert order is not None
    engine = straight.make_engine(order=order, first_step=1, observer=Collect())
    states: list[Any] = []
    keep = lambda: states.append(engine.snapshot()) if engine.step == 30 else None  # noqa: E731
    expected = run_steps(engine, 40, after=keep)
    other = workload(make(), folder, pilot=pilot)
    resumed = other.make_engine(order=order, first_step=1, observer=Collect())
    from pilot.engines.state import copy_state

    resumed.restore(copy_state(states[0]))
    assert [r.row_ids for r in run_steps(resumed, 40)] == [r.row_ids for r in expected[30:]]
    larger = workload(make(per_device_train_batch_size=8), folder, pilot=pilot)
    assert larger.trainer.pilot_held_out.members == straight.trainer.pilot_held_out.members
    assert larger.max_steps == MAX_STEPS


def test_a_loader_that_repeats_rows_is_refused(tmp_path: Path) -> None:
    from transformers import Trainer

    class Weighted(Trainer):
        def _get_train_sampler(self, *args: Any) -> Any:
            weights = [1.0] * len(self.train_dataset)
            return torch.utils.data.WeightedRandomSampler(weights, len(weights))

    trainer = make_trainer(tmp_path, kind=Weighted, train=make_rows(96), evaluate={})
    said = workload(trainer, pilot={"min_peak_steps": 99}).hold_out(PilotFolder(tmp_path), ROWS)
    assert said is not None and not (tmp_path / "held_out.npy").exists()
    assert "does not draw each row once in an epoch (WeightedRandomSampler)" in said["refused"]


# ---- what counts as a validation set


@pytest.mark.parametrize("empty", [[], {}, {"a": []}])
def test_no_set_and_empty_sets_are_none(tmp_path: Path, empty: Any) -> None:
    work = workload(make_trainer(tmp_path, train=make_rows(200), evaluate=empty))
    assert work.validation_rows == {}
    assert work.hold_out(PilotFolder(tmp_path), ROWS) is not None
    assert list(data_sets(work.trainer)) == ["train_dataset"]


def test_an_empty_set_among_others_is_left_out(tmp_path: Path) -> None:
    work = workload(make_trainer(tmp_path, evaluate={"a": [], "b": HELD}))
    assert work.validation_rows == {"b": 12} and work.hold_out(PilotFolder(tmp_path), ROWS) is None


def test_a_loader_of_the_users_own_is_a_validation_set(tmp_path: Path) -> None:
    from transformers import Trainer

    class Own(Trainer):
        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            return torch.utils.data.DataLoader(HELD, batch_size=2, collate_fn=collate)

    work = workload(make_trainer(tmp_path, kind=Own, train=make_rows(200), evaluate={}))
    work.trainer.eval_dataset = None
    assert work.validation_rows == {"validation": 12}
    assert work.hold_out(PilotFolder(tmp_path), ROWS) is None
    engine = trained(work, 2)
    assert len(engine.observer.validations[0].loss_sums) == 8


def test_a_stale_choice_is_dropped(tmp_path: Path) -> None:
    folder = PilotFolder(tmp_path)
    np.save(folder.held_out, np.arange(3))
    assert workload(make_trainer(tmp_path)).hold_out(folder, ROWS) is None
    assert not folder.held_out.exists()


def test_validations_draw_the_same_random_numbers(tmp_path: Path) -> None:
    """A collator that masks at random: one row's loss changes by the weights alone."""

    def masking(rows: Any) -> Any:
        batch = collate(rows)
        ids = batch["input_ids"]
        return {**batch, "input_ids": torch.where(torch.rand(ids.shape) < 0.3, 5, ids)}

    work = workload(make_trainer(tmp_path, train=make_rows(200), evaluate={}, collator=masking))
    work.hold_out(PilotFolder(tmp_path), ROWS)
    order = work.own_order(8)
    assert order is not None
    engine = work.make_engine(order=order, first_step=1, observer=Collect())

    def twice() -> None:
        engine.request_validation("one")
        seeds.seed_everything(5)
        engine.request_validation("two")

    run_steps(engine, 1, before=twice)
    one, two = engine.observer.validations
    assert one.loss_sums == two.loss_sums


@pytest.mark.parametrize("packing", [False, True])
def test_an_sft_trainer_without_a_set(tmp_path: Path, packing: bool) -> None:
    """Its rows are tokenised when it is built; the held-out ones go through its own collator."""
    texts = [{"prompt": f"What is {i}? ", "completion": f"It is {i}."} for i in range(600)]
    trainer = sft(tmp_path, texts, packing=packing, max_steps=40, seed=7)
    pilot = {**SHORT, "min_peak_steps": 4, "seed": 7, "validation_rows": 8}
    run = {"schedule_steps": 40, "warmup_steps": 0, "schedule": "linear"}
    config = config_for(trainer, pilot=pilot, full_run=run)
    config.recipe["trainer"] = "train.py"
    work = TrainerWorkload(trainer, config, {})
    said = work.hold_out(PilotFolder(tmp_path), ROWS)
    assert said is not None and said["mode"] == UNDRAWN and work.digests()[0]["sha256"]
    engine = trained(work, 4)
    first = engine.observer.validations[0]
    assert len(first.loss_sums) == 8 and min(first.token_counts) > 0
    assert 4.0 < first.loss < 8.0  # about ln(320): untrained
