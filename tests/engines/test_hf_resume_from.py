"""A Trainer under pilot from the user's own checkpoint-N: their numbers, and what was restored."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from pilot.engines import seeds
from pilot.engines.base import Program, StepRequest
from pilot.engines.hf.rescale import scale_rates
from pilot.engines.hf.rows import planned_batches
from pilot.engines.state import copy_state
from pilot.engines.transformers import TransformersEngine
from pilot.errors import ConfigError
from pilot.records import Outcome, StepRecord
from tests.engines.collect import Collect
from tests.engines.trainers import attach, config_for, make_trainer, run_steps

# Three micro-batches a step, eight an epoch: steps 3, 6, 9, ... end an epoch with a short step.
RUN: dict[str, Any] = {"dropout": 0.2, "gradient_accumulation_steps": 3, "max_steps": 20}
LAST = 16


def crashed(folder: Path, **changes: Any) -> dict[int, tuple[float, float, float]]:
    """A run that saves after the steps 6 and 7 and ends after step 12; its numbers."""
    from transformers import TrainerCallback

    class Save(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            control.should_save = state.global_step in (6, 7)
            control.should_training_stop = state.global_step == 12

    trainer = make_trainer(folder, **{**RUN, **changes})
    trainer.add_callback(Save())
    trainer.train()
    return numbers(trainer)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a run with two checkpoints."""
    folder = tmp_path_factory.mktemp("theirs")
    crashed(folder)
    return folder


def numbers(trainer: Any) -> dict[int, tuple[float, float, float]]:
    """Loss, norm and rate of every step, as the Trainer logs them."""
    logs = [log for log in trainer.state.log_history if "loss" in log]
    return {log["step"]: (log["loss"], log["grad_norm"], log["learning_rate"]) for log in logs}


def resumed(
    path: Path, folder: Path, step: int, *, own: Mapping[str, Any] | None = None, **changes: Any
) -> TransformersEngine:
    """pilot's engine behind ``step`` of the checkpoint at ``path``."""
    trainer = make_trainer(folder, **{**RUN, **changes})
    optim = config_for(trainer).optim.model_dump(by_alias=True)
    optim["weight_decay"] = trainer.args.weight_decay
    config = config_for(trainer, optim=optim)
    state = seeds.random_state()
    planned = planned_batches(trainer, trainer.get_train_dataloader(), 40)[step:]
    seeds.set_random_state(state)
    engine = TransformersEngine(
        trainer, config, planned=planned, first_step=step + 1, observer=Collect()
    )
    engine.resume_from(path, own or {})
    return engine


def hashes(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        p.name: (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns)
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def copied(saved: Path, to: Path, step: int, *without: str) -> Path:
    """A copy of the checkpoint of ``step`` without some of its files."""
    shutil.copytree(saved / f"checkpoint-{step}", to)
    for name in without:
        (to / name).unlink()
    return to


def lost(engine: TransformersEngine) -> dict[str, str]:
    assert engine.restored is not None
    return {p.name: p.why for p in engine.restored.parts if not p.restored}


@pytest.mark.parametrize("step", [6, 7])
def test_the_records_are_those_of_the_users_own_resume_and_of_the_whole_run(
    saved: Path, tmp_path: Path, step: int
) -> None:
    """Dropout on; step 6 ends an epoch, step 7 lies within one."""
    path = saved / f"checkpoint-{step}"
    before = hashes(path)
    straight = run_steps(attach(make_trainer(tmp_path / "s", **RUN)), LAST)
    theirs = make_trainer(tmp_path / "t", **RUN)
    theirs.train(resume_from_checkpoint=str(path))
    engine = resumed(path, tmp_path / "p", step)

    def look() -> None:
        engine.request_validation("before")
        engine.try_rows(engine.rows_of(step + 1)[:4])
        engine.snapshot()

    records = run_steps(engine, LAST, before=look, after=lambda: engine.request_validation("x"))
    assert records == straight[step:] and len(records) == LAST - step
    own = numbers(theirs)
    assert [(r.grad_norm, r.learning_rate) for r in records] == [
        own[s][1:] for s in range(step + 1, LAST + 1)
    ]
    assert [r.loss for r in records] == pytest.approx(
        [own[s][0] for s in range(step + 1, LAST + 1)], rel=1e-4
    )
    assert hashes(path) == before and not list((tmp_path / "p").iterdir())
    assert lost(engine) == {} and engine.restored.notes == ()  # type: ignore[union-attr]
    assert [p.name for p in engine.restored.parts] == [  # type: ignore[union-attr]
        "weights",
        "optimizer state",
        "schedule position",
        "random states",
        "data position",
    ]


@pytest.mark.parametrize("step", [6, 7])
@pytest.mark.parametrize("kept", [0, 2])
def test_pilots_own_states_behind_it_are_exact(
    saved: Path, tmp_path: Path, step: int, kept: int
) -> None:
    """A kill behind the start, also before the first step, then a fresh process."""
    path, states = saved / f"checkpoint-{step}", []
    engine = resumed(path, tmp_path / "a", step)

    def keep() -> None:
        if engine.step == step + kept:
            states.append(copy_state(engine.snapshot()))

    expected = run_steps(engine, LAST, before=keep, after=keep)
    again = resumed(path, tmp_path / "b", step)
    again.restore(states[0])
    assert run_steps(again, LAST) == expected[kept:]
    assert again.restored is None


@pytest.mark.parametrize("step", [6, 7])
def test_a_branch_from_the_first_state_goes_on_exactly(
    saved: Path, tmp_path: Path, step: int
) -> None:
    path = saved / f"checkpoint-{step}"
    expected = run_steps(resumed(path, tmp_path / "a", step), step + 4)
    engine = resumed(path, tmp_path / "b", step)

    def program() -> Program:
        state = copy_state(engine.snapshot())
        for _ in range(2):
            yield StepRequest(learning_rate=1e-3, forced=True)
        engine.flush()
        engine.restore(state)
        while engine.step < step + 4:
            yield StepRequest(learning_rate=0.0)
        engine.flush()
        return Outcome(status=Outcome.COMPLETED, last_step=engine.step)

    engine.run(program())
    assert engine.observer.steps[2:] == expected  # type: ignore[attr-defined]


def arm(saved: Path, folder: Path, **changes: Any) -> list[StepRecord]:
    """Steps 8 to 12 of an arm that changes one training argument."""
    own = {"learning_rate": 1e-2, "weight_decay": 0.0, "seed": 7}
    name = next(iter(changes))
    if name == "seed":
        changes["data_seed"] = own["seed"]
    engine = resumed(saved / "checkpoint-7", folder, 7, own=own, **changes)
    records = run_steps(engine, 12)
    if name == "seed":
        assert "this arm's variable" in lost(engine)["random states"]
    return records


def test_an_arm_really_has_what_it_changes(saved: Path, tmp_path: Path) -> None:
    """A restored optimizer brings the old rate, decay and random states with it."""
    base = run_steps(resumed(saved / "checkpoint-7", tmp_path / "base", 7), 12)
    lower = arm(saved, tmp_path / "lr", learning_rate=1e-2 / 3)
    for one, other in zip(base, lower, strict=True):
        assert other.learning_rate == pytest.approx(one.learning_rate / 3, rel=1e-12)
        assert one.row_ids == other.row_ids
    assert lower[0].loss == base[0].loss and lower[1].loss != base[1].loss
    decayed = arm(saved, tmp_path / "wd", weight_decay=0.5)
    assert decayed[0].loss == base[0].loss and decayed[0].param_norm < base[0].param_norm
    assert [r.learning_rate for r in decayed] == [r.learning_rate for r in base]
    replica = arm(saved, tmp_path / "seed", seed=8)
    assert [r.row_ids for r in replica] == [r.row_ids for r in base]
    assert all(a.loss != b.loss for a, b in zip(replica, base, strict=True))
    assert math.isclose(replica[0].loss, base[0].loss, rel_tol=0.2)


def test_what_is_missing_is_said(saved: Path, tmp_path: Path) -> None:
    """A Trainer restores optimizer and scheduler together or neither."""
    cases = {
        "optimizer.pt": {"optimizer state", "schedule position"},
        "scheduler.pt": {"optimizer state", "schedule position"},
        "rng_state.pth": {"random states"},
    }
    for name, expected in cases.items():
        path = copied(saved, tmp_path / name / "checkpoint-7", 7, name)
        engine = resumed(path, tmp_path / name / "out", 7)
        records = run_steps(engine, 8)
        assert set(lost(engine)) == expected, name
        assert all(name in why for why in lost(engine).values())
        if name != "rng_state.pth":
            assert records[0].learning_rate == 0.0  # the first of the warm-up: what they would get
            assert "fresh moments" in lost(engine)["optimizer state"]


def test_random_states_of_several_processes_and_another_loader(saved: Path, tmp_path: Path) -> None:
    path = copied(saved, tmp_path / "checkpoint-7", 7, "rng_state.pth")
    for rank in range(2):
        shutil.copy(saved / "checkpoint-7" / "rng_state.pth", path / f"rng_state_{rank}.pth")
    engine = resumed(path, tmp_path / "o", 7, per_device_train_batch_size=2, max_steps=30)
    run_steps(engine, 8)
    found = lost(engine)
    assert "those of 2 processes, here is 1" in found["random states"]
    assert "saved in epoch 2.375" in found["data position"]
    assert "batch size 4 then, 2 now" in found["data position"]
    assert "planned for 20 steps when it was saved, now for 30" in engine.restored.notes[0]  # type: ignore[union-attr]


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('code was run')",))


def spoil_weights(path: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(path / "model.safetensors")
    weights = {k: v for k, v in weights.items() if "layers.1.mlp" not in k}
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})


def other_shape(path: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(path / "model.safetensors")
    weights["model.norm.weight"] = torch.ones(3)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})


def other_state(path: Path) -> None:
    state = torch.load(path / "optimizer.pt")
    state["param_groups"] = state["param_groups"][:1]
    torch.save(state, path / "optimizer.pt")


def evil(name: str) -> Any:
    return lambda path: torch.save({"x": Evil()}, path / name)


def evil_weights(path: Path) -> None:
    (path / "model.safetensors").unlink()
    torch.save({"x": Evil()}, path / "pytorch_model.bin")


def sharded(path: Path) -> None:
    """The same weights in two files with an index."""
    from safetensors.torch import load_file, save_file

    weights = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    names, places = sorted(weights), {}
    for number, part in enumerate((names[:5], names[5:]), start=1):
        file = f"model-{number:05d}-of-00002.safetensors"
        save_file({n: weights[n] for n in part}, path / file, metadata={"format": "pt"})
        places.update(dict.fromkeys(part, file))
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def test_sharded_weights_are_the_same_weights(saved: Path, tmp_path: Path) -> None:
    path = copied(saved, tmp_path / "checkpoint-7", 7)
    sharded(path)
    engine = resumed(path, tmp_path / "o", 7)
    whole = resumed(saved / "checkpoint-7", tmp_path / "o2", 7)
    assert run_steps(engine, 9) == run_steps(whole, 9)
    assert "more" in engine.restored.parts[0].why  # type: ignore[union-attr]
    lost_file = sorted(path.glob("model-*.safetensors"))[0]
    lost_file.unlink()
    with pytest.raises(ConfigError, match=f"missing: {lost_file.name}"):
        resumed(path, tmp_path / "o3", 7)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (spoil_weights, "missing 3: model.layers.1.mlp.down_proj.weight"),
        (other_shape, "size mismatch for model.norm.weight"),
        (other_state, "optimizer.pt or scheduler.pt cannot be restored"),
        (evil("optimizer.pt"), "only running code could make"),
        (evil("scheduler.pt"), "only running code could make"),
        (evil("rng_state.pth"), "only running code could make"),
        (evil_weights, "only running code could make"),
    ],
)
def test_what_cannot_be_restored_is_refused(
    saved: Path, tmp_path: Path, spoil: Any, said: str
) -> None:
    path = copied(saved, tmp_path / "checkpoint-7", 7)
    spoil(path)
    with pytest.raises(ConfigError) as caught:
        run_steps(resumed(path, tmp_path / "o", 7), 8)
    assert said in str(caught.value), str(caught.value)
    assert "recipe.resume_from" in str(caught.value)


def test_a_rate_that_the_restored_optimizer_would_not_follow_is_refused(
    saved: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        run_steps(resumed(saved / "checkpoint-7", tmp_path, 7, learning_rate=5e-3), 8)
    assert "goes on with learning_rate 0.01" in str(caught.value)
    assert "built with 0.005" in str(caught.value)


def test_an_adapter_goes_on_and_needs_a_model_with_one(tmp_path: Path) -> None:
    expected = crashed(tmp_path / "theirs", lora=True)
    path = tmp_path / "theirs" / "checkpoint-7"
    engine = resumed(path, tmp_path / "o", 7, lora=True)
    records = run_steps(engine, 12)
    assert [r.grad_norm for r in records] == [expected[s][1] for s in range(8, 13)]
    assert lost(engine) == {}
    with pytest.raises(ConfigError, match="holds an adapter alone"):
        resumed(path, tmp_path / "o2", 7)


def test_rates_are_scaled_in_optimizer_and_scheduler() -> None:
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    groups = [{"params": [weights[0]], "lr": 1.0}, {"params": [weights[1]], "lr": 0.1}]
    optimizer = torch.optim.SGD(groups)
    parts = [
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5, eta_min=0.01),
    ]
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [3])
    twin = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    halved = [{"params": [twin[0]], "lr": 0.5}, {"params": [twin[1]], "lr": 0.05}]
    other = torch.optim.SGD(halved)
    theirs = torch.optim.lr_scheduler.SequentialLR(
        other,
        [
            torch.optim.lr_scheduler.LinearLR(other, 0.1, total_iters=3),
            torch.optim.lr_scheduler.CosineAnnealingLR(other, 5, eta_min=0.005),
        ],
        [3],
    )
    scale_rates(optimizer, scheduler, 0.5)
    for _ in range(8):
        for one, two in zip(optimizer.param_groups, other.param_groups, strict=True):
            assert one["lr"] == pytest.approx(two["lr"])
        for pair in ((optimizer, scheduler), (other, theirs)):
            pair[0].step()
            pair[1].step()


def test_the_step_must_be_the_checkpoints(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="saved after step 7, the pilot starts after step 6"):
        resumed(saved / "checkpoint-7", tmp_path, 6)
    state = json.loads((saved / "checkpoint-7" / "trainer_state.json").read_text())
    assert state["global_step"] == 7
