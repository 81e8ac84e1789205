"""A whole pilot of a Trainer script, then the full run of the same script, bound to its GO."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.userdir import verdict
from tests.conftest import RunPilot, environment

SCRIPT = """
import os, sys
import pilot
from sizes import NUM_ROWS
from tests.engines.trainers import make_rows, make_trainer

def build_trainer():
    trainer = make_trainer(
        "their_output", max_steps=400, train=make_rows(NUM_ROWS), evaluate=make_rows(24, seed=1),
        learning_rate=float(os.environ.get("RATE", 1e-2)), dropout=0.1,
    )
    trainer.add_callback(pilot.PilotCallback(verdict="out"))
    return trainer

if __name__ == "__main__":
    from transformers import TrainerCallback

    class Stop(TrainerCallback):  # the test has no time for a full run
        def on_step_end(self, args, state, control, **more):
            control.should_training_stop = state.global_step == 2

    trainer = build_trainer()
    trainer.add_callback(Stop())
    trainer.train()
    print("trained", trainer.state.global_step)
"""
YAML = """\
# @package _global_
defaults:
  - override /engine: transformers
  - override /arms: reference
recipe: {name: mine, trainer: "train.py:build_trainer"}
full_run: {schedule_steps: 400, warmup_steps: 3, schedule: cosine}
batch: {micro_batch_size: 4}
optim: {learning_rate: 1.0e-2, max_grad_norm: 1.0}
pilot: {min_peak_steps: 40, cooldown_steps: 8, seed: 7}
tracking: {uri: null}
out_dir: out
"""


def full_run(root: Path, rate: str) -> subprocess.CompletedProcess[str]:
    """``python train.py``, as its owner starts it."""
    return subprocess.run(
        [sys.executable, "train.py"],
        cwd=root,
        env={**environment(), "RATE": rate, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_full_run_is_bound_to_its_go(tmp_path: Path, run_pilot: RunPilot) -> None:
    (tmp_path / "conf" / "recipe").mkdir(parents=True)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "sizes.py").write_text("NUM_ROWS = 96\n")
    (tmp_path / "conf" / "recipe" / "mine.yaml").write_text(YAML)
    early = full_run(tmp_path, "1e-2")
    assert early.returncode == 1 and "FolderError: out: has no verdict" in early.stderr
    done = run_pilot("+recipe=mine", cwd=tmp_path)  # their callback does nothing in it
    assert done.returncode == 0, done.stdout + done.stderr
    assert verdict(tmp_path / "out")["fingerprint"]["trainer"]["learning_rate"] == 1e-2
    same = full_run(tmp_path, "1e-2")
    assert same.returncode == 0 and "trained 2" in same.stdout, same.stderr
    other = full_run(tmp_path, "2e-2")
    assert other.returncode == 1 and "trained" not in other.stdout
    assert "trainer learning_rate: 0.01 -> 0.02" in other.stderr
    assert "python -m pilot +recipe=mine" in other.stderr
    checked = run_pilot("verify", "out", "+recipe=mine", cwd=tmp_path)
    assert checked.returncode == 0 and "PilotCallback(verdict='out')" in checked.stdout
    (tmp_path / "train.py").write_text("# a comment\n" + SCRIPT.replace('="out")', '="./out")'))
    assert full_run(tmp_path, "1e-2").returncode == 0
    assert run_pilot("verify", "out", "+recipe=mine", cwd=tmp_path).returncode == 0
    (tmp_path / "train.py").write_text(SCRIPT + "\nMORE = 1\n")
    edited = full_run(tmp_path, "1e-2")
    assert edited.returncode == 1 and "code train.py: was changed" in edited.stderr
    assert run_pilot("verify", "out", "+recipe=mine", cwd=tmp_path).returncode == 4
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "sizes.py").write_text("NUM_ROWS = 32 * 3\n")
    checked = run_pilot("verify", "out", "+recipe=mine", cwd=tmp_path)
    assert checked.returncode == 4 and "code sizes.py: was changed" in checked.stdout
