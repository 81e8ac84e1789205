"""Recipes that fail: outcomes with exit code 3, never a crash of pilot."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pilot.view import load_arm
from tests.cli.userdir import make_user_dir
from tests.conftest import RunPilot, environment

BUILD = """
def build(settings, *, sequence_length, seed):
    return Broken()
"""

RAISING_COLLATOR = (
    """
class Broken(TinyRecipe):
    def collate(self, examples):
        Broken.calls = getattr(Broken, "calls", 0) + 1
        rows = [e.input_ids for e in examples]
        if rows == [self.train[i].input_ids for i in BAD]:
            raise ValueError("row with [red]markup[/red] and \\x1b[31mcolour")
        return super().collate(examples)
"""
    + BUILD
)

NAN_AT_STEP_7 = (
    """
class Broken(TinyRecipe):
    def losses(self, model, batch):
        losses = super().losses(model, batch)
        Broken.calls = getattr(Broken, "calls", 0) + (1 if model.training else 0)
        # longest sample and two replays come before step 1, in the baseline
        return losses * float("nan") if Broken.calls == 3 + 7 else losses
"""
    + BUILD
)

HUNGRY = (
    """
class Broken(TinyRecipe):
    def losses(self, model, batch):
        torch.zeros(6_000_000_000, dtype=torch.uint8)
        return super().losses(model, batch)
"""
    + BUILD
)

LABELS_OUTSIDE = (
    """
class Broken(TinyRecipe):
    def __init__(self):
        super().__init__()
        bad = self.train[5]
        self.train[5] = Example(bad.input_ids, (*bad.labels[:-1], VOCAB + 3), bad.source)

    def build_model(self, scale):
        model = super().build_model(scale)
        model.get_input_embeddings = lambda: model.embed
        return model
"""
    + BUILD
)

FROZEN_HEAD = (
    """
class Broken(TinyRecipe):
    def build_model(self, scale):
        model = super().build_model(scale)
        model.head.weight.register_hook(lambda grad: grad * 1e-12)
        return model
"""
    + BUILD
)


def outcome_of(root: Path) -> dict[str, object]:
    """The baseline's outcome."""
    data: dict[str, object] = json.loads((root / "out/arms/baseline/outcome.json").read_text())
    return data


def test_a_collator_that_raises_at_step_20(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_user_dir(tmp_path / "u", patch="BAD = ()\n" + RAISING_COLLATOR)
    import numpy as np

    from pilot.data.representative import representative_order
    from tests.recipes_for_tests import TinyRecipe

    rows = TinyRecipe().train
    order = representative_order(
        31 * 8,
        guaranteed_within=25 * 8,
        data_seed=0,
        micro_batch_size=8,
        num_tokens=np.array([len(e.input_ids) for e in rows]),
        source=np.array(["ab".index(e.source) for e in rows]),
    )
    bad = tuple(int(i) for i in order[19 * 8 : 20 * 8])
    path = root / "recipes/tiny.py"
    path.write_text(path.read_text().replace("BAD = ()", f"BAD = {bad}"))
    done = run_pilot("+recipe=tiny", cwd=root)
    assert done.returncode == 3, done.stdout + done.stderr
    outcome = outcome_of(root)
    assert (outcome["status"], outcome["where"], outcome["step"]) == ("exception", "collate", 20)
    assert outcome["row_ids"] == list(bad) and outcome["last_step"] == 19
    assert len(load_arm(root / "out/arms/baseline").steps) == 19
    assert "NO-GO" in done.stdout and "step 20" in done.stdout
    assert "\x1b[31m" not in done.stdout and "[red]markup" in done.stdout
    lower = load_arm(root / "out/arms/lr_x1_3")  # ran beside it: met the same rows, or was stopped
    ended = lower.outcome.status if lower.outcome else lower.absence["reason"]
    assert ended in ("exception", "the baseline ended with exception")


def test_nan_at_step_7_is_no_go_with_its_step(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_user_dir(tmp_path / "u", patch=NAN_AT_STEP_7)
    done = run_pilot("+recipe=tiny", cwd=root)
    assert done.returncode == 3, done.stdout + done.stderr
    outcome = outcome_of(root)
    assert outcome["status"] == "stopped" and "at step 7" in str(outcome["message"])
    steps = load_arm(root / "out/arms/baseline").steps
    assert [r.step for r in steps if not r.finite_loss][0] == 7
    assert "step 7" in done.stdout


def test_running_out_of_memory_is_no_go(tmp_path: Path) -> None:
    root = make_user_dir(tmp_path / "u", patch=HUNGRY)
    limit = 5_000_000_000
    done = subprocess.run(
        [sys.executable, "-m", "pilot", "+recipe=tiny"],
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert outcome_of(root)["status"] == "out_of_memory"
    assert "out of memory" in done.stdout.lower()


def test_label_ids_outside_of_the_vocabulary(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_user_dir(tmp_path / "u", patch=LABELS_OUTSIDE)
    done = run_pilot("+recipe=tiny", cwd=root)
    assert done.returncode == 3, done.stdout + done.stderr
    verdict = json.loads((root / "out/verdict.json").read_text())
    status = {gate["name"]: gate["status"] for gate in verdict["gates"]}
    assert status["labels"] == "fail"
    assert "row 5" in done.stdout or "rows 5" in done.stdout, done.stdout


def test_a_tensor_that_does_not_move(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_user_dir(tmp_path / "u", patch=FROZEN_HEAD)
    done = run_pilot("+recipe=tiny", "optim=sgd", "optim.learning_rate=0.02", cwd=root)
    assert done.returncode == 3, done.stdout + done.stderr
    verdict = json.loads((root / "out/verdict.json").read_text())
    status = {gate["name"]: gate["status"] for gate in verdict["gates"]}
    assert status["movement"] == "fail" and "head.weight" in done.stdout


@pytest.mark.parametrize("patch", ["def build(settings, *, sequence_length, seed):\n    1 / 0\n"])
def test_a_recipe_that_cannot_be_built(tmp_path: Path, run_pilot: RunPilot, patch: str) -> None:
    root = make_user_dir(tmp_path / "u", patch=patch)
    done = run_pilot("+recipe=tiny", cwd=root)
    assert done.returncode == 2
    assert "ZeroDivisionError" in done.stderr and "cannot be built" in done.stderr


def test_refused_plan_shows_its_numbers(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_user_dir(tmp_path / "u")
    done = run_pilot("+recipe=tiny", "pilot.budget_steps=10", cwd=root)
    assert done.returncode == 2
    assert "10 cannot cover 31 steps" in done.stderr
