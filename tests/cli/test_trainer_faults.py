"""Faults in the user's own Trainer through the whole command line: NO-GO with the named finding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pilot.jsonl import to_json
from pilot.view import load_arm
from tests.cli.userdir import verdict
from tests.conftest import RunPilot

SCRIPT = """
from pathlib import Path
from tests.engines.trainer_faults import faulty

def build_trainer():
    return faulty("{name}", Path("theirs"), max_steps=400, learning_rate={rate})
"""
YAML = """\
# @package _global_
defaults:
  - override /engine: transformers
  - override /arms: reference
recipe: {{name: mine, trainer: "train.py:build_trainer"}}
full_run: {{schedule_steps: 400, warmup_steps: 3, schedule: cosine}}
batch: {{micro_batch_size: 4, grad_accum_steps: {accumulate}}}
optim: {{learning_rate: {rate}, max_grad_norm: 1.0}}
pilot: {{min_peak_steps: 24, cooldown_steps: 4, seed: 7}}
arms: {{learning_rate_scales: []}}
tracking: {{uri: null}}
out_dir: out
"""
NATIVE = """
from tests.engines.trainers import LlamaRecipe, make_rows

def build(settings, *, sequence_length, seed):
    return LlamaRecipe(train=make_rows(96), held=make_rows(24, seed=1))
"""
HEALTHY = """
from pathlib import Path
from tests.engines.trainers import make_rows, make_trainer

def build_trainer():
    return make_trainer(
        Path("theirs"), max_steps=400, learning_rate={rate},
        train=make_rows(96), evaluate=make_rows(24, seed=1),
    )
"""


def user_dir(root: Path, script: str, *, rate: float = 1e-2, accumulate: int = 1) -> Path:
    """``train.py`` and ``conf/recipe/mine.yaml`` under ``root``."""
    (root / "conf" / "recipe").mkdir(parents=True)
    (root / "train.py").write_text(script)
    text = YAML.format(rate=rate, accumulate=accumulate)
    (root / "conf" / "recipe" / "mine.yaml").write_text(text)
    return root


# The fault, the gate or check that says so, and words of the finding.
FOUND = {
    "nan_loss_once": ("finite", "loss"),
    "nan_gradients": ("finite", "grad"),
    "all_masked": ("labels", "without a supervised token: all"),
    "frozen": ("outcome", "everything is frozen"),
    "hasty_scheduler": ("schedule", "learning rate"),
    "half_optimizer": ("movement", "never moved"),
    "collator": ("outcome", "gone"),
    "out_of_memory": ("outcome", "memory ran out in training_step"),
    "system_exit": ("outcome", "SystemExit"),
    "callback_stops": ("outcome", "ended by itself after step 5 of 400"),
    "evaluation": ("outcome", "no such metric"),
    "drawn_again": ("weight_jump", "step 16 moved the weights by"),
    "no_gradients": ("silent_gradients", "gradient norm is exactly 0 from step 5 to the end"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_a_fault_is_no_go(tmp_path: Path, run_pilot: RunPilot, name: str) -> None:
    accumulate = 2 if name == "hasty_scheduler" else 1
    script = SCRIPT.format(name=name, rate=1e-2)
    root = user_dir(tmp_path / "u", script, accumulate=accumulate)
    done = run_pilot("+recipe=mine", cwd=root)
    assert done.returncode == 3, done.stdout + done.stderr
    check, words = FOUND[name]
    findings = [json.loads(line) for line in (root / "out/findings.jsonl").read_text().splitlines()]
    said = [f for f in findings if f["check"] == check and f["severity"] == "fail"]
    assert any(words in finding["sentence"] for finding in said), findings
    assert not (root / "theirs").exists()


def flown(root: Path, run_pilot: RunPilot, rate: float, engine: str) -> tuple[Any, Any]:
    """Verdict and baseline of one pilot of the same model, rows and settings."""
    (root / "recipes").mkdir(parents=True)
    (root / "recipes" / "mine_native.py").write_text(NATIVE)
    user_dir(root, HEALTHY.format(rate=rate), rate=rate)
    if engine == "native":
        path = root / "conf" / "recipe" / "mine.yaml"
        text = path.read_text().replace("/engine: transformers", "/engine: native")
        path.write_text(text.replace('trainer: "train.py:build_trainer"', "module: mine_native"))
    longer = ["pilot.min_peak_steps=40", "pilot.cooldown_steps=8", "pilot.data=prefix"]
    done = run_pilot("+recipe=mine", *longer, "arms.learning_rate_scales=[0.3333]", cwd=root)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    return verdict(root / "out"), load_arm(root / "out/arms/baseline")


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "expected"), [(1e-2, "GO"), (10.0, "NO-GO")])
def test_both_engines_say_the_same(
    tmp_path: Path, run_pilot: RunPilot, rate: float, expected: str
) -> None:
    one, mine = flown(tmp_path / "native", run_pilot, rate, "native")
    other, theirs = flown(tmp_path / "trainer", run_pilot, rate, "transformers")
    assert one["verdict"] == other["verdict"] == expected
    rates = [[record.learning_rate for record in arm.steps] for arm in (mine, theirs)]
    assert rates[0] == rates[1] and len(rates[0]) >= 5
    before = [next(v for v in arm.validations if v.at == "before") for arm in (mine, theirs)]
    assert before[0].loss == pytest.approx(before[1].loss, rel=1e-6), to_json(before[1])
