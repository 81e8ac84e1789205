"""Whole pilots of a user's own Trainer script: the verdicts, and nothing of theirs touched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
