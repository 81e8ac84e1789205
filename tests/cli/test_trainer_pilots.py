"""Whole pilots of a user's own Trainer script: the verdicts, and nothing of theirs touched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pilot.plan import read_plan
from pilot.view import load_arm
from tests.cli.test_pilot_kills import wait_for_steps
from tests.cli.userdir import joined, verdict
from tests.conftest import RunPilot, environment

SCRIPT = """
import time
from pathlib import Path
from tests.engines.trainers import collate, make_rows, make_trainer

def slowly(rows):
    time.sleep({secs})
    return collate(rows)

def build_trainer():
    return make_trainer(
        Path("their_output"), max_steps=400, train=make_rows(96), evaluate=make_rows(24, seed=1),
        learning_rate={rate}, dropout=0.1, collator=slowly,
    )
"""
YAML = """\
# @package _global_
defaults:
  - override /engine: transformers
  - override /arms: reference
recipe: {{name: mine, trainer: "train.py:build_trainer"}}
full_run: {{schedule_steps: 400, warmup_steps: 3, schedule: cosine}}
batch: {{micro_batch_size: 4}}
optim: {{learning_rate: {rate}, max_grad_norm: 1.0}}
pilot: {{min_peak_steps: 40, cooldown_steps: 8, seed: 7, checkpoint_every_steps: 8}}
tracking: {{uri: null}}
out_dir: out
"""


def make_script_dir(
    root: Path, rate: float, *, configured: float | None = None, secs: float = 0.0
) -> Path:
    """``train.py`` and ``conf/recipe/mine.yaml`` under ``root``."""
    (root / "conf" / "recipe").mkdir(parents=True)
    (root / "train.py").write_text(SCRIPT.format(rate=rate, secs=secs))
    (root / "conf" / "recipe" / "mine.yaml").write_text(YAML.format(rate=configured or rate))
    return root


def test_a_healthy_run_is_go(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_script_dir(tmp_path / "u", 1e-2)
    done = run_pilot("+recipe=mine", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (root / "their_output").exists()
    baseline, lower = (load_arm(root / "out/arms" / name) for name in ("baseline", "lr_x1_3"))
    assert len(baseline.steps) == 43 and len(baseline.cooldown) == 8
    assert [r.row_ids for r in baseline.steps] == [r.row_ids for r in lower.steps]
    for one, other in zip(baseline.steps, lower.steps, strict=True):
        assert other.learning_rate == pytest.approx(one.learning_rate / 3, rel=1e-5)
    evidence = baseline.experiment("determinism")
    assert evidence is not None and evidence.values["relative_spread"] == 0.0


@pytest.mark.slow
def test_a_ruinous_rate_is_no_go(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_script_dir(tmp_path / "u", 10.0)
    done = run_pilot("+recipe=mine", cwd=root)
    assert done.returncode == 3, done.stdout + done.stderr
    assert verdict(root / "out")["verdict"] == "NO-GO"


@pytest.mark.slow
def test_a_value_of_the_recipe_replaces_the_trainers(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_script_dir(tmp_path / "u", 1e-2, configured=5e-3)
    done = run_pilot("+recipe=mine", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    said = "optim.learning_rate=0.005 replaces the Trainer's 0.01"
    assert said in " ".join(done.stdout.split())
    assert load_arm(root / "out/arms/baseline").steps[3].learning_rate == pytest.approx(5e-3)


@pytest.mark.slow
def test_kill_9_then_resume_gives_the_same_records(tmp_path: Path, run_pilot: RunPilot) -> None:
    words = [sys.executable, "-m", "pilot", "+recipe=mine", "arms.learning_rate_scales=[]"]
    whole = make_script_dir(tmp_path / "whole", 1e-2)
    killed = make_script_dir(tmp_path / "killed", 1e-2, secs=0.1)
    run_pilot(*words[3:], cwd=whole)
    process = subprocess.Popen(words, cwd=killed, env=environment(), stdout=subprocess.DEVNULL)
    wait_for_steps(killed / "out/arms/baseline/steps.001.jsonl", 21, process)
    process.kill()
    process.wait()
    run_pilot("resume", str(killed / "out"), cwd=killed)
    lineage = json.loads((killed / "out/arms/baseline/lineage.json").read_text())
    assert lineage["attempts"] == 2 and lineage["resumed_from_step"] >= 16
    assert joined(killed / "out/arms/baseline") == joined(whole / "out/arms/baseline")


OWN = """
import torch
from pathlib import Path
from tests.engines.trainers import make_model, make_rows, make_trainer

def build_trainer():
    model = make_model()
    parameters = list(model.parameters())
    groups = [{"params": parameters[:4], "lr": 2e-2}, {"params": parameters[4:], "lr": 1e-2}]
    optimizer = torch.optim.AdamW(groups)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=[2e-2, 1e-2], total_steps=400, pct_start=0.05
    )
    return make_trainer(
        Path("their_output"), max_steps=400, train=make_rows(96), evaluate=make_rows(24, seed=1),
        learning_rate=5e-5, dropout=0.1, model=model, optimizers=(optimizer, schedule),
    )
"""
HASTY = """
from transformers import Trainer

class Hasty(Trainer):
    def training_step(self, *args, **more):
        loss = super().training_step(*args, **more)
        self.lr_scheduler.step()
        return loss
"""


def make_own_dir(root: Path, script: str) -> Path:
    """The same with the script's own optimizer and schedule."""
    make_script_dir(root, 5e-5)
    (root / "train.py").write_text(script)
    recipe = root / "conf" / "recipe" / "mine.yaml"
    lines = recipe.read_text().splitlines(keepends=True)
    recipe.write_text("".join(x for x in lines if not x.startswith(("optim:", "full_run:"))))
    return root


@pytest.mark.slow
def test_an_optimizer_and_a_schedule_of_their_own(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_own_dir(tmp_path / "u", OWN)
    refused = run_pilot("+recipe=mine", "arms.add=[{full_run.warmup_steps: 30}]", cwd=root)
    assert refused.returncode == 2 and "makes its scheduler itself" in refused.stderr
    done = run_pilot("+recipe=mine", "arms.add=[{optim.weight_decay: 0.1}]", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "an arm of the learning rate scales all its rates" in " ".join(done.stdout.split())
    baseline, lower = (load_arm(root / "out/arms" / name) for name in ("baseline", "lr_x1_3"))
    plan = read_plan(json.loads((root / "out/plan.json").read_text()))
    assert plan.schedule.kind == "trainer" and plan.schedule.warmup_steps == 19
    assert [r.learning_rate for r in baseline.steps] == list(plan.schedule.rates[:59])
    for one, other in zip(baseline.steps, lower.steps, strict=True):
        assert other.learning_rate == pytest.approx(one.learning_rate / 3, rel=1e-5)
        assert one.row_ids == other.row_ids
    rates = [r.learning_rate for r in baseline.cooldown]
    first = plan.schedule.rates[58]
    assert rates == pytest.approx([first * (8 - k) / 9 for k in range(8)], rel=1e-12)
    arms = {arm["name"]: arm for arm in verdict(root / "out")["arms"]}  # type: ignore[attr-defined]
    assert arms["weight_decay_0.1"]["status"] == "completed"  # on the groups of the script's own
    decayed = load_arm(root / "out/arms/weight_decay_0.1").steps
    assert [r.learning_rate for r in decayed] == [r.learning_rate for r in baseline.steps]
    assert decayed[0].loss == baseline.steps[0].loss and decayed[8].loss != baseline.steps[8].loss


@pytest.mark.slow
def test_a_scheduler_stepped_per_micro_batch_is_no_go(tmp_path: Path, run_pilot: RunPilot) -> None:
    place = 'Path("their_output"),'
    script = HASTY + OWN.replace(place, f"{place} kind=Hasty,")
    root = make_own_dir(tmp_path / "u", script)
    done = run_pilot("+recipe=mine", cwd=root)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "schedule: the learning rate at step 1" in str(verdict(root / "out")["why"])
