"""``recipe.resume_from`` on the command line: refused before anything runs, and whole pilots."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from pilot.cli.compose import compose
from pilot.cli.resume_from import start_from
from pilot.errors import ConfigError
from pilot.view import load_arm
from tests.cli.test_trainer_pilots import make_script_dir
from tests.cli.userdir import make_user_dir, verdict
from tests.conftest import RunPilot, environment
from tests.recipes_for_tests import TinyLm

STATE = {"global_step": 120, "epoch": 1.0, "max_steps": 400, "train_batch_size": 4}


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A user's directory with a Trainer's recipe (``mine``)."""
    return make_script_dir(tmp_path / "u", 1e-2)


def checkpoint(root: Path, name: str = "checkpoint-120", **state: Any) -> Path:
    """A folder such as a Trainer saves, with one small weight."""
    path = root / "saved" / name
    path.mkdir(parents=True)
    save_file({"w": torch.ones(3)}, path / "model.safetensors")
    (path / "trainer_state.json").write_text(json.dumps({**STATE, **state}))
    return path


def mistakes(root: Path, *words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        compose(["+recipe=mine", *words], root)
    return str(caught.value)


@pytest.mark.parametrize("word", ["recipe.resume_from=", "+recipe.resume_from="])
def test_the_step_is_the_checkpoints(scripts: Path, word: str) -> None:
    checkpoint(scripts)
    made = compose(["+recipe=mine", f"{word}saved/checkpoint-120"], scripts)
    assert made.tree["full_run"]["start_step"] == 120
    assert made.overrides[-1] == "full_run.start_step=120"
    again = compose(
        ["+recipe=mine", f"{word}{scripts / 'saved/checkpoint-120'}", "full_run.start_step=120"],
        scripts,
    )
    assert again.tree["full_run"]["start_step"] == 120
    assert compose(["+recipe=mine"], scripts).tree["full_run"]["start_step"] is None
    assert compose(["+recipe=mine", f"{word}null"], scripts).overrides[-1] != made.overrides[-1]


@pytest.mark.parametrize("given", [0, 119])
def test_another_step_is_a_mistake_that_names_both(scripts: Path, given: int) -> None:
    checkpoint(scripts)
    text = mistakes(
        scripts, "recipe.resume_from=saved/checkpoint-120", f"full_run.start_step={given}"
    )
    assert f"full_run.start_step = {given}" in text and "was saved after step 120" in text


def spoil(path: Path, kind: str) -> None:
    """Make the folder at ``path`` one that cannot be started from."""
    weights, state = path / "model.safetensors", path / "trainer_state.json"
    if kind == "cut":
        weights.write_bytes(weights.read_bytes()[:-4])
    elif kind == "empty file":
        weights.write_bytes(b"")
    elif kind == "header":
        weights.write_bytes(b"\xff" * 64)
    elif kind == "lfs":
        weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    elif kind == "no weights":
        weights.unlink()
    elif kind == "state":
        state.write_text("{")
    elif kind == "no step":
        state.write_text(json.dumps({"epoch": 1}))
    elif kind == "step true":
        state.write_text(json.dumps({"global_step": True}))
    elif kind == "shards":
        weights.unlink()
        names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
        save_file({"a": torch.ones(1)}, path / names["a"])
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    elif kind == "deepspeed":
        weights.unlink()
        (path / "global_step120").mkdir()
    elif kind == "fsdp":
        weights.unlink()
        (path / "pytorch_model_fsdp_0").mkdir()
    elif kind == "dcp":
        weights.unlink()
        (path / "__0_0.distcp").write_bytes(b"x")
    elif kind == "bin":
        weights.unlink()
        (path / "pytorch_model.bin").write_text("hello")
    elif kind == "optimizer":
        torch.save({"x": torch.ones(100)}, path / "optimizer.pt")
        whole = (path / "optimizer.pt").read_bytes()
        (path / "optimizer.pt").write_bytes(whole[: len(whole) // 2])
    elif kind == "all":
        weights.write_bytes(b"")
        (path / "rng_state.pth").write_bytes(b"")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("cut", "model.safetensors has 72 bytes, its header needs 76"),
        ("empty file", "model.safetensors is empty"),
        ("header", "has no safetensors header"),
        ("lfs", "Git LFS pointer"),
        ("no weights", "has trainer_state.json and no weights"),
        ("state", "must say global_step: JSONDecodeError"),
        ("no step", "must say global_step: KeyError"),
        ("step true", "global_step is True"),
        ("shards", "names 2 files, 1 are missing: model-00002-of-00002.safetensors"),
        ("deepspeed", "global_step120/ is DeepSpeed's"),
        ("fsdp", "pytorch_model_fsdp_0/ is FSDP's"),
        ("dcp", ".distcp files are torch.distributed.checkpoint's"),
        ("bin", "pytorch_model.bin is no torch file"),
        ("optimizer", "optimizer.pt is cut short"),
        ("all", "model.safetensors is empty; rng_state.pth is empty"),
    ],
)
def test_what_is_no_checkpoint_is_said(scripts: Path, kind: str, said: str) -> None:
    path = checkpoint(scripts)
    spoil(path, kind)
    text = mistakes(scripts, "recipe.resume_from=saved/checkpoint-120")
    assert said in text and "recipe.resume_from" in text, text


def test_other_places(scripts: Path) -> None:
    checkpoint(scripts)
    checkpoint(scripts, "checkpoint-60", global_step=60)
    (scripts / "saved" / "empty").mkdir()
    (scripts / "weights").mkdir()
    save_file({"w": torch.ones(3)}, scripts / "weights" / "model.safetensors")
    shown = "lie: checkpoint-60, checkpoint-120"
    for place, said in {
        "saved/checkpoint-180": shown,
        "saved/empty": "is an empty folder",
        "saved": shown,
        "conf": "is no checkpoint: looked for trainer_state.json",
        "nowhere/x": "there is nothing at",
        "weights": "a Trainer resumes from a folder with trainer_state.json",
        "saved/checkpoint-60/trainer_state.json": "is one file of a checkpoint",
        "7": "must be the path of a checkpoint, as text",
        "[a]": "must be the path of a checkpoint, as text",
        "''": "must be the path of a checkpoint, as text",
    }.items():
        text = mistakes(scripts, f"recipe.resume_from={place}")
        assert said in text, (place, text)


def test_a_run_that_is_over_and_an_arm_of_another_checkpoint(scripts: Path) -> None:
    checkpoint(scripts, global_step=400)
    word = "recipe.resume_from=saved/checkpoint-120"
    assert "full_run.schedule_steps = 400 are all done" in mistakes(scripts, word)
    arms = "arms.add=[{recipe.resume_from: saved/checkpoint-60}]"
    assert "it is the checkpoint that every arm starts from" in mistakes(scripts, arms)
    assert "did you mean 'recipe.resume_from'?" in mistakes(scripts, "recipe.resumefrom=x")


def test_torch_is_not_imported_to_look(scripts: Path) -> None:
    checkpoint(scripts)
    code = (
        "import sys; from pathlib import Path; from pilot.user_checkpoint import look; "
        "look(Path('saved/checkpoint-120')); import pilot.cli.resume_from; "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=scripts, env=environment(), check=False)
    assert done.returncode == 0


# ---- whole pilots

THEIR_RUN = """
import json
from transformers import TrainerCallback
from train import build_trainer

class Crash(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        control.should_save = state.global_step == 31
        if state.global_step == 50:
            raise RuntimeError("a node is gone")

trainer = build_trainer()
trainer.add_callback(Crash())
try:
    trainer.train()
finally:
    logs = [log for log in trainer.state.log_history if "loss" in log]
    json.dump({log["step"]: [log["grad_norm"], log["learning_rate"]] for log in logs},
              open("theirs.json", "w"))
"""


@pytest.mark.slow
def test_a_trainers_crashed_run_is_piloted_from_its_checkpoint(
    tmp_path: Path, run_pilot: RunPilot
) -> None:
    root = make_script_dir(tmp_path / "u", 1e-2)
    (root / "run.py").write_text(THEIR_RUN)
    subprocess.run([sys.executable, "run.py"], cwd=root, env=environment(), capture_output=True)
    path = root / "their_output" / "checkpoint-31"
    before = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in path.iterdir()}
    words = ("recipe.resume_from=their_output/checkpoint-31", "arms.num_replicas=1")
    done = run_pilot("+recipe=mine", *words, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "starts after step 31 from checkpoint-31: restored weights, optimizer" in done.stdout
    after = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in path.iterdir()}
    assert before == after and [p.name for p in path.parent.iterdir()] == ["checkpoint-31"]
    arms = {name: load_arm(root / "out/arms" / name) for name in ("baseline", "lr_x1_3")}
    replica = load_arm(next((root / "out/arms").glob("replica_*")))
    steps = arms["baseline"].steps
    theirs = json.loads((root / "theirs.json").read_text())
    assert [r.step for r in steps] == list(range(32, 72))
    assert [[r.grad_norm, r.learning_rate] for r in steps[:18]] == [
        theirs[str(step)] for step in range(32, 50)
    ]
    for one, other in zip(steps, arms["lr_x1_3"].steps, strict=False):
        assert other.learning_rate == pytest.approx(one.learning_rate / 3, rel=1e-5)
    assert replica.steps[0].loss != steps[0].loss
    assert replica.steps[0].row_ids == steps[0].row_ids
    evidence = arms["baseline"].experiment("resume_from")
    assert evidence is not None and all(p["restored"] for p in evidence.values["parts"])
    judged = verdict(root / "out")
    assert judged["verdict"] == "GO"
    assert any("starts after step 31" in line for line in judged["warnings"])  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_native_run_late_in_its_schedule(tmp_path: Path, run_pilot: RunPilot) -> None:
    """18,000 of 60,000 cosine steps are done: gates, figure and report on records from 18,001."""
    root = make_user_dir(tmp_path / "u")
    torch.manual_seed(3)
    model = TinyLm()
    torch.save({"model": model.state_dict(), "iter_num": 18_000}, root / "ckpt.pt")
    words = ("recipe.resume_from=ckpt.pt", "full_run.schedule_steps=60000", "pilot.data=prefix")
    done = run_pilot("+recipe=tiny", *words, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    baseline = load_arm(root / "out/arms/baseline")
    assert [r.step for r in baseline.steps] == list(range(18_001, 18_021))
    assert [v.step for v in baseline.validations] == [18_000, 18_010, 18_020, 18_026]
    judged: Any = verdict(root / "out")
    assert judged["verdict"] == "GO" and judged["plan"]["start_step"] == 18_000
    assert any("optimizer state not restored" in line for line in judged["not_measured"])
    report = (root / "out" / "report.md").read_text()
    assert "step 18000" in report and "step 1 " not in report
    moved = (root / "moved.pt").write_bytes((root / "ckpt.pt").read_bytes())
    again = [word.replace("ckpt.pt", "moved.pt") for word in words]
    assert moved and run_pilot("verify", "out", "+recipe=tiny", *words, cwd=root).returncode == 0
    different = run_pilot("verify", "out", "+recipe=tiny", *again, cwd=root)
    assert "ckpt.pt: no longer read" in different.stdout
    torch.save({"model": TinyLm().state_dict(), "iter_num": 18_000}, root / "ckpt.pt")
    changed = run_pilot("verify", "out", "+recipe=tiny", *words, cwd=root)
    assert changed.returncode == 4 and "data ckpt.pt" in changed.stdout
    assert (
        run_pilot(
            "+recipe=tiny", *words, "full_run.start_step=7", "out_dir=o2", cwd=root
        ).returncode
        == 2
    )


def test_a_trainer_starts_late_only_from_a_checkpoint() -> None:
    recipe = {"trainer": "train.py:build_trainer"}
    _, wrong = start_from({"recipe": recipe, "full_run": {"start_step": 7}}, {}, Path.cwd())
    assert [mistake.key for mistake in wrong] == ["full_run.start_step"]
    for start_step in (0, None):
        tree = {"recipe": recipe, "full_run": {"start_step": start_step}}
        assert start_from(tree, {}, Path.cwd()) == ([], [])
    tree = {"recipe": {"name": "mine"}, "full_run": {"start_step": 7}}
    assert start_from(tree, {}, Path.cwd()) == ([], [])
