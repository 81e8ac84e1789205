"""Whole pilots and the data of a Trainer: no validation set, other rows than before."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pilot.view import load_arm
from tests.cli.test_pilot_kills import wait_for_steps
from tests.cli.test_trainer_pilots import YAML
from tests.cli.userdir import verdict
from tests.conftest import RunPilot, environment

SCRIPT = """
import json, time
from pathlib import Path
from tests.engines.trainers import collate, make_trainer

ROWS = json.loads(Path("rows.json").read_text())

def slowly(rows):
    time.sleep({secs})
    return collate(rows)

def build_trainer():
    trainer = make_trainer(
        Path("their_output"), max_steps=400, train=ROWS, evaluate={{}}, learning_rate=1e-2,
        dropout=0.1, collator=slowly,
    )
    trainer.eval_dataset = None
    return trainer
"""


def make_dir(root: Path, num_rows: int, secs: float = 0.0) -> Path:
    """``train.py`` over the rows of ``rows.json``, without a validation set."""
    from tests.engines.trainers import make_rows

    (root / "conf" / "recipe").mkdir(parents=True)
    (root / "train.py").write_text(SCRIPT.format(secs=secs))
    rows = [{**row, "source": "xy"[i % 2]} for i, row in enumerate(make_rows(num_rows))]
    (root / "rows.json").write_text(json.dumps(rows))
    (root / "conf" / "recipe" / "mine.yaml").write_text(
        YAML.format(rate=1e-2).replace("seed: 7", "seed: 7, max_extension_steps: 8")
    )
    return root


def change_rows(root: Path) -> None:
    """Another token in the last row."""
    rows = json.loads((root / "rows.json").read_text())
    rows[-1]["input_ids"][-1] = 7
    (root / "rows.json").write_text(json.dumps(rows))


@pytest.mark.slow
def test_rows_that_are_not_drawn_are_the_validation_set(
    tmp_path: Path, run_pilot: RunPilot
) -> None:
    root = make_dir(tmp_path / "u", 300)
    done = run_pilot("+recipe=mine", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    held = set(np.load(root / "out/held_out.npy").tolist())
    assert "training rows that no step of this pilot draws" in " ".join(done.stdout.split())
    assert "no step of this pilot draws" in json.dumps(verdict(root / "out"))
    for name in ("baseline", "lr_x1_3"):
        arm = load_arm(root / "out/arms" / name)
        rows = {row for record in (*arm.steps, *arm.cooldown) for row in record.row_ids}
        assert rows.isdisjoint(held) and len(rows) > 150
        assert {v.name for v in arm.validations} == {"held_out"}
        assert set(arm.steps[0].source_counts) <= {"x", "y"}
    asked = run_pilot("verify", str(root / "out"), "+recipe=mine", cwd=root)
    assert asked.returncode == 0, asked.stdout + asked.stderr
    change_rows(root)
    asked = run_pilot("verify", str(root / "out"), "+recipe=mine", cwd=root)
    assert asked.returncode == 4, asked.stdout + asked.stderr
    assert "data train_dataset: 300 rows (sha256 " in asked.stdout


@pytest.mark.slow
def test_a_share_of_short_data_is_held_out(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_dir(tmp_path / "u", 96)
    done = run_pilot("+recipe=mine", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 of 96 training rows are held out" in " ".join(done.stdout.split())
    assert "not trained on" in json.dumps(verdict(root / "out"))
    held = set(np.load(root / "out/held_out.npy").tolist())
    arm = load_arm(root / "out/arms/baseline")
    rows = {row for record in arm.steps for row in record.row_ids}
    assert rows == set(range(96)) - held and len(held) == 9


@pytest.mark.slow
def test_too_few_rows_are_refused(tmp_path: Path, run_pilot: RunPilot) -> None:
    done = run_pilot("+recipe=mine", cwd=make_dir(tmp_path / "u", 30))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "30 training rows are too few to hold some out" in " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_resumed_pilot_with_other_rows_is_refused(tmp_path: Path, run_pilot: RunPilot) -> None:
    words = [sys.executable, "-m", "pilot", "+recipe=mine", "arms.learning_rate_scales=[]"]
    root = make_dir(tmp_path / "u", 300, secs=0.1)
    process = subprocess.Popen(words, cwd=root, env=environment(), stdout=subprocess.DEVNULL)
    wait_for_steps(root / "out/arms/baseline/steps.001.jsonl", 12, process)
    process.kill()
    process.wait()
    change_rows(root)
    done = run_pilot("resume", str(root / "out"), cwd=root)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "train_dataset: 300 rows with other content" in " ".join(done.stderr.split())
