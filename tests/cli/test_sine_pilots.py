"""The sine recipe: a rate that works, one that explodes, and clipping as a fuse, not a cure."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from pilot.view import load_arm
from tests.conftest import RunPilot

COMMON = ("+recipe=sine_mlp", "tracking=none", "out_dir=out")


def verdict_of(cwd: Path) -> dict[str, Any]:
    """The verdict of the pilot in ``out``."""
    data: dict[str, Any] = json.loads((cwd / "out" / "verdict.json").read_text())
    return data


def test_a_good_rate_converges(tmp_path: Path, run_pilot: RunPilot) -> None:
    done = run_pilot(*COMMON, "optim.learning_rate=0.01", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    arm = load_arm(tmp_path / "out/arms/baseline")
    before, after = arm.validation("before"), arm.validation("cooldown_end")
    assert before is not None and 0.055 < before.loss < 0.075
    assert after is not None and 0.02 < after.loss < 0.032


def test_rate_one_explodes(tmp_path: Path, run_pilot: RunPilot) -> None:
    done = run_pilot(*COMMON, "optim.learning_rate=1.0", cwd=tmp_path)
    assert done.returncode == 3, done.stdout + done.stderr
    steps = load_arm(tmp_path / "out/arms/baseline").steps
    huge = next(r.step for r in steps if r.loss > 1e50)
    broken = next(r.step for r in steps if not r.finite_loss)
    assert huge <= 25 and broken <= 100
    assert verdict_of(tmp_path)["cause"]["category"] == "undetermined"


def test_clipping_is_a_fuse_not_a_cure(tmp_path: Path, run_pilot: RunPilot) -> None:
    words = ("optim.learning_rate=1.0", "optim.max_grad_norm=1.0")
    done = run_pilot(*COMMON, *words, cwd=tmp_path)
    arm = load_arm(tmp_path / "out/arms/baseline")
    assert len(arm.steps) == 128
    for record in (*arm.steps, *arm.cooldown):
        assert math.isfinite(record.loss)
        assert record.grad_norm * record.clip_coef <= 1.0 + 1e-9
    assert done.returncode in (3, 4), done.stdout + done.stderr
    assert verdict_of(tmp_path)["verdict"] != "GO"
