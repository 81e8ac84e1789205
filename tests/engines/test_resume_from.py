"""The native engine from a user's checkpoint: a Trainer's folder, torch files, the recipe's own."""

from __future__ import annotations

import argparse
import dataclasses
import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pilot.config import Config
from pilot.engines.base import Observer
from pilot.engines.native import NativeEngine
from pilot.engines.native_workload import NativeWorkload
from pilot.engines.resume_from import begin
from pilot.engines.script_checkpoint import whole_number
from pilot.errors import ConfigError
from tests.engines.trainers import LlamaRecipe, config_for, make_trainer, run_steps
from tests.recipes_for_tests import TinyLm, TinyRecipe
from tests.trees import config_tree

ADAM = {"_target_": "torch.optim.AdamW", "learning_rate": 0.01}


def config_of(path: Path | None, *, step: int | None = None, **sections: Any) -> Config:
    """The small configuration that starts from ``path``."""
    tree = config_tree(**{"optim": ADAM, **sections})
    if path is not None:
        tree["recipe"]["resume_from"] = str(path)
    tree["full_run"]["start_step"] = step
    return Config.model_validate(tree)


def start(config: Config, folder: Path, *, hook: str = "", first_step: int = 1) -> NativeEngine:
    """The engine that an arm gets; ``hook`` is the recipe's own loader."""
    folder.mkdir(parents=True, exist_ok=True)
    module = folder / "own_recipe.py"
    module.write_text(textwrap.dedent(hook))
    workload = NativeWorkload(TinyRecipe(), config, module)
    order = np.arange(400, dtype=np.int64) % 64
    return workload.make_engine(order=order, first_step=first_step, observer=Observer())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> NativeEngine:
    """Five steps without a checkpoint: what a user's script holds when it saves."""
    engine = start(config_of(None, step=0), tmp_path_factory.mktemp("own"))
    for _ in range(5):
        engine.train_step(0.01)
    return engine


def parts(engine: NativeEngine) -> dict[str, bool]:
    assert engine.restored is not None
    return {part.name: part.restored for part in engine.restored.parts}


def why(engine: NativeEngine, name: str) -> str:
    assert engine.restored is not None
    return next(part.why for part in engine.restored.parts if part.name == name)


def same(one: NativeEngine, other: NativeEngine) -> bool:
    a, b = one.model.state_dict(), other.model.state_dict()
    return all(torch.equal(a[name], b[name]) for name in a)


def prefixed(state: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


@pytest.mark.parametrize(
    ("model", "optimizer", "step", "prefix"),
    [
        ("model", "optimizer", "step", ""),
        ("model_state_dict", "optimizer_state_dict", "global_step", "module."),
        ("state_dict", "optimizer_states", "iteration", "model."),
        ("module", "optimizer", "update", "module._orig_mod."),
        ("model", "optimizer", "iter_num", "_orig_mod."),
    ],
)
def test_the_names_that_scripts_use(
    trained: NativeEngine, tmp_path: Path, model: str, optimizer: str, step: str, prefix: str
) -> None:
    state: Any = trained.optimizer.state_dict()
    content = {
        model: prefixed(trained.model.state_dict(), prefix),
        optimizer: [state] if optimizer == "optimizer_states" else state,
        step: np.int64(5) if step == "step" else torch.tensor(5) if step == "update" else 5,
        "args": argparse.Namespace(lr=1.0),
        "numpy_rng": np.random.get_state()[1],
    }
    torch.save(content, tmp_path / "ckpt.pt")
    engine = start(config_of(tmp_path / "ckpt.pt"), tmp_path / "r")
    assert engine.step == 5 and engine.first_step == 6 and same(engine, trained)
    assert parts(engine) == {
        "weights": True,
        "optimizer state": True,
        "schedule position": True,
        "random states": False,
        "data position": False,
    }
    mine, theirs = engine.optimizer.state_dict(), trained.optimizer.state_dict()
    for index, entry in theirs["state"].items():
        assert all(torch.equal(mine["state"][index][k], v) for k, v in entry.items())
    assert engine.rows_of(6) == tuple(range(8))


def test_the_next_steps_are_those_of_the_run_that_saved(
    trained: NativeEngine, tmp_path: Path
) -> None:
    """Without dropout nothing but the state matters: losses bit for bit, also in pilot's own."""
    recipe = TinyRecipe(dropout=0.0)

    def engine_of(config: Config) -> NativeEngine:
        workload = NativeWorkload(recipe, config, tmp_path / "none.py")
        order = np.arange(400, dtype=np.int64) % 64
        return workload.make_engine(order=order, first_step=1, observer=Observer())

    (tmp_path / "none.py").write_text("")
    straight = engine_of(config_of(None))
    for _ in range(5):
        straight.train_step(0.01)
    folder = tmp_path / "step_00000005"
    folder.mkdir()
    torch.save(straight.snapshot(), folder / "state.pt")
    (folder / "manifest.json").write_text(json.dumps({"step": 5}))
    resumed = engine_of(config_of(folder))
    assert resumed.step == 5
    resumed.order = np.roll(resumed.order, -40)  # the rows of step 6 on
    for engine in (straight, resumed):
        engine.probe.collect()  # type: ignore[union-attr]
        engine.train_step(0.01)
    one, other = (engine.probe.collect() for engine in (straight, resumed))  # type: ignore[union-attr]
    assert one == dataclasses.replace(other, row_ids=one.row_ids)  # type: ignore[type-var, union-attr]
    assert one.relative_update > 0  # type: ignore[union-attr]


@pytest.mark.parametrize("lora", [False, True])
def test_a_trainers_folder_gives_the_trainers_next_losses(tmp_path: Path, lora: bool) -> None:
    """Its optimizer has two groups (decayed, not decayed), the native one has one."""
    saving: dict[str, Any] = {"save_strategy": "steps", "save_steps": 7, "max_steps": 12}
    trainer = make_trainer(tmp_path / "t", lora=lora, **saving)
    trainer.train()
    logs = [log for log in trainer.state.log_history if "loss" in log]
    path = tmp_path / "t" / "checkpoint-7"
    tree = config_for(trainer).model_dump(by_alias=True)
    tree["full_run"] |= {"schedule_steps": 12, "start_step": 7}
    tree["recipe"]["resume_from"] = str(path)
    from pilot.engines.hf.rows import planned_batches

    planned = planned_batches(trainer, trainer.get_train_dataloader(), 12)[7:]
    order = np.array([row for step in planned for rows in step for row in rows], dtype=np.int64)
    (tmp_path / "none.py").write_text("")
    recipe: Any = LlamaRecipe(lora=lora)
    workload = NativeWorkload(recipe, Config.model_validate(tree), tmp_path / "none.py")
    from tests.engines.collect import Collect

    engine = workload.make_engine(order=order, first_step=8, observer=Collect())
    records = run_steps(engine, 12)
    assert parts(engine)["optimizer state"]
    assert [r.learning_rate for r in records] == [log["learning_rate"] for log in logs[7:]]
    assert [r.grad_norm for r in records] == pytest.approx(
        [log["grad_norm"] for log in logs[7:]], rel=1e-5
    )


def test_settings_stay_those_of_the_configuration(trained: NativeEngine, tmp_path: Path) -> None:
    """An arm of the decay or of beta2 must have it, whatever the saved optimizer had."""
    content = {"model": trained.model.state_dict(), "step": 5}
    torch.save({**content, "optimizer": trained.optimizer.state_dict()}, tmp_path / "c.pt")
    optim = {**ADAM, "weight_decay": 0.5, "betas": [0.9, 0.5]}
    hook = """
        import torch

        def load_checkpoint(path, model, optimizer):
            content = torch.load(path, weights_only=True)
            model.load_state_dict(content["model"])
            optimizer.load_state_dict(content["optimizer"])
            return {"step": content["step"], "restored": ["my sampler"]}
    """
    for number, text in enumerate(("", hook)):
        engine = start(config_of(tmp_path / "c.pt", optim=optim), tmp_path / str(number), hook=text)
        group = engine.optimizer.param_groups[0]
        assert group["weight_decay"] == 0.5 and tuple(group["betas"]) == (0.9, 0.5)
        assert same(engine, trained) and engine.optimizer.state and engine.step == 5
        assert "weight_decay 0" in engine.restored.notes[0]  # type: ignore[union-attr]
    assert parts(engine)["my sampler"]


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("return 5", ""),
        ("return {'step': 5}", ""),
        ("return None", "does not say its step"),
        ("return 'five'", "must return the step"),
        ("return True", "must return the step"),
        ("return -1", "must return the step"),
        ("raise KeyError('model')", "KeyError: 'model'"),
    ],
)
def test_the_recipes_own_loader(tmp_path: Path, returned: str, said: str) -> None:
    hook = f"def load_checkpoint(path, model, optimizer):\n    {returned}\n"
    (tmp_path / "any").mkdir()
    config = config_of(tmp_path / "any")
    if said:
        with pytest.raises(ConfigError) as caught:
            start(config, tmp_path / "r", hook=hook)
        assert said in str(caught.value)
        return
    engine = start(config, tmp_path / "r", hook=hook)
    assert engine.step == 5
    assert not parts(engine)["weights"] and "not one tensor" in why(engine, "weights")
    assert "fresh moments" in why(engine, "optimizer state")


def test_the_step_that_is_given_must_be_the_checkpoints(
    trained: NativeEngine, tmp_path: Path
) -> None:
    torch.save({"model": trained.model.state_dict(), "step": 5}, tmp_path / "c.pt")
    torch.save(trained.model.state_dict(), tmp_path / "weights.pt")
    for given in (0, 4):
        with pytest.raises(ConfigError, match=r"start_step = \d[\s\S]*was saved after step 5"):
            start(config_of(tmp_path / "c.pt", step=given), tmp_path / "r", first_step=given + 1)
    engine = start(config_of(tmp_path / "weights.pt", step=4), tmp_path / "r", first_step=5)
    assert engine.step == 4 and not parts(engine)["optimizer state"]
    with pytest.raises(ConfigError, match="does not say its step"):
        start(config_of(tmp_path / "weights.pt"), tmp_path / "r")


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('code was run')",))


def without(state: dict[str, Any], name: str) -> dict[str, Any]:
    return {k: v for k, v in state.items() if k != name}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda s: {"model": without(s, "head.bias")}, "missing 1: head.bias"),
        (lambda s: {"model": {**s, "x.w": torch.ones(1)}}, "unknown to it 1: x.w"),
        (
            lambda s: {"model": {**s, "head.bias": torch.ones(3)}},
            "of another shape 1: head.bias [3] and not [17]",
        ),
        (lambda s: {"weights_of_it": s}, "has no weights that are known"),
        (lambda s: [1, 2], "must hold a dictionary, it holds a list"),
        (lambda s: {"model": s, "extra": Evil()}, "only running code could make"),
        (lambda s: TinyLm(), "only running code could make"),
        (lambda s: {"model": {}}, "has no weights that are known"),
    ],
)
def test_what_does_not_fit_is_refused(
    trained: NativeEngine, tmp_path: Path, make: Any, said: str
) -> None:
    torch.save(make(trained.model.state_dict()), tmp_path / "c.pt")
    with pytest.raises(ConfigError) as caught:
        start(config_of(tmp_path / "c.pt", step=5), tmp_path / "r", first_step=6)
    assert said in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"state": {}, "param_groups": [{"params": [0, 1, 2]}]}, "it is empty"),
        ({"state": {}, "param_groups": [{"params": [0]}]}, "of 1 tensors, the optimizer has 3"),
        ({"moments": 1, "more": 2}, "no state_dict of one torch optimizer"),
        (
            {
                "state": {
                    i: {"momentum_buffer": torch.zeros(s)}
                    for i, s in enumerate([(17, 8), (17, 8), (17,)])
                },
                "param_groups": [{"params": [0, 1, 2]}],
            },
            "AdamW keeps exp_avg, exp_avg_sq, step, the checkpoint has momentum_buffer",
        ),
        (
            {
                "state": {i: {"exp_avg": torch.zeros(3, 3)} for i in range(3)},
                "param_groups": [{"params": [0, 1, 2]}],
            },
            "other shapes",
        ),
    ],
)
def test_a_state_of_another_optimizer_is_said_to_be_lost(
    trained: NativeEngine, tmp_path: Path, state: Any, said: str
) -> None:
    content = {"model": trained.model.state_dict(), "optimizer": state, "step": 5}
    torch.save(content, tmp_path / "c.pt")
    engine = start(config_of(tmp_path / "c.pt"), tmp_path / "r")
    assert said in why(engine, "optimizer state") and not engine.optimizer.state
    engine.train_step(0.01)


@pytest.mark.parametrize("target", ["SGD", "Adafactor", "RMSprop", "Adam"])
def test_every_class_goes_on_with_its_own_state(tmp_path: Path, target: str) -> None:
    optim = {"_target_": f"torch.optim.{target}", "learning_rate": 0.01}
    optim |= {"momentum": 0.9} if target == "SGD" else {}
    straight = start(config_of(None, optim=optim), tmp_path / "a")
    for _ in range(3):
        straight.train_step(0.01)
    state = straight.optimizer.state_dict()
    content = {"model": straight.model.state_dict(), "optimizer": state, "step": 3}
    torch.save(content, tmp_path / "c.pt")
    engine = start(config_of(tmp_path / "c.pt", optim=optim), tmp_path / "b")
    assert parts(engine)["optimizer state"], why(engine, "optimizer state")
    assert len(engine.optimizer.state) == 3


def test_data_position_and_loss_scale(trained: NativeEngine, tmp_path: Path) -> None:
    torch.save({"model": trained.model.state_dict(), "step": 5}, tmp_path / "c.pt")
    pilot = {"data": "prefix"}
    engine = start(config_of(tmp_path / "c.pt", pilot=pilot), tmp_path / "r")
    assert parts(engine)["data position"] and "from row 40" in why(engine, "data position")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (5, 5),
        (5.0, 5),
        (np.int32(5), 5),
        (torch.tensor([5]), 5),
        (True, None),
        (-1, None),
        ("5", None),
        (5.5, None),
        (float("nan"), None),
        (torch.zeros(2), None),
        (None, None),
    ],
)
def test_whole_numbers(value: Any, found: int | None) -> None:
    assert whole_number(value) == found


def test_a_missing_loss_scale_is_said(trained: NativeEngine, tmp_path: Path) -> None:
    """Only where there is a scaler: its state is taken over, or said to begin anew."""
    content: dict[str, Any] = {"model": trained.model.state_dict(), "step": 5}
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for number, extra in enumerate(({}, {"scaler": scaler.state_dict()})):
        path = tmp_path / f"{number}.pt"
        torch.save({**content, **extra}, path)
        engine = start(config_of(None), tmp_path / "r")
        engine.scaler = torch.amp.GradScaler("cpu")
        engine.config = config_of(path)
        engine.restored = begin(engine, tmp_path / "r" / "own_recipe.py")
        assert parts(engine)["loss scale"] == bool(extra)
        assert engine.scaler.get_scale() == (64.0 if extra else 65536.0)
