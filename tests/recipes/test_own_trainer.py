"""The script and the recipe of "Your own Trainer" in recipes/README.md are all that is needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from pilot.view import load_arm
from tests import tiny_llama
from tests.cli.userdir import verdict
from tests.conftest import RunPilot

README = Path(__file__).resolve().parents[2] / "recipes" / "README.md"


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    return str(found)


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A directory with exactly what the page says, a model and a text."""
    (tmp_path / "conf" / "recipe").mkdir(parents=True)
    (tmp_path / "conf" / "recipe" / "mine.yaml").write_text(block("yml"), encoding="utf-8")
    (tmp_path / "train.py").write_text(block("py"), encoding="utf-8")
    tiny_llama.save(tmp_path / "my_model")
    lines = [f"line {i} says {i % 7} and then {i % 5} and {i % 3}" for i in range(100)]
    (tmp_path / "my.txt").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_the_script_is_asked_for_everything(user: Path, run_pilot: RunPilot) -> None:
    done = run_pilot("--cfg", "job", "+recipe=mine", "optim.learning_rate=2e-3", cwd=user)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("asking train.py:build_trainer") == 1
    tree = yaml.safe_load(done.stdout)
    run, optim = tree["full_run"], tree["optim"]
    assert (run["schedule_steps"], run["warmup_steps"], run["schedule"]) == (400, 10, "linear")
    assert optim["learning_rate"] == 2e-3 and optim["max_grad_norm"] == 1.0
    assert tree["engine"]["answers"]["optim"]["learning_rate"] == 1e-3
    assert tree["batch"]["micro_batch_size"] == 4 and tree["pilot"]["seed"] == 42
    assert tree["pilot"]["data"] == "prefix" and tree["recipe"]["objective"] == "lm"


@pytest.mark.slow
def test_a_whole_pilot_and_its_verification(user: Path, run_pilot: RunPilot) -> None:
    words = (
        *("+recipe=mine", "arms=reference", "tracking=none", "out_dir=out"),
        *("pilot.min_peak_steps=24", "pilot.cooldown_steps=8", "optim.learning_rate=2e-3"),
        "arms.add=[{recipe.arguments.label_smoothing_factor: 0.1}, {full_run.warmup_steps: 4}]",
    )
    done = run_pilot(*words, cwd=user)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (user / "my_output").exists()
    said = "optim.learning_rate=0.002 replaces the Trainer's 0.001"
    assert said in " ".join(done.stdout.split())
    arms = {path.name: path for path in (user / "out" / "arms").iterdir()}
    logs = {name: (path / "log.txt").read_text() for name, path in arms.items()}
    base = "training arguments set over the script's: {'learning_rate': 0.002"
    assert base + "}" in logs["baseline"]
    assert base + ", 'label_smoothing_factor': 0.1}" in logs["label_smoothing_factor_0.1"] or (
        "{'label_smoothing_factor': 0.1, 'learning_rate': 0.002}"
        in logs["label_smoothing_factor_0.1"]
    )
    assert base + ", 'warmup_steps': 4}" in logs["warmup_steps_4"]
    baseline, warm = (load_arm(arms[name]) for name in ("baseline", "warmup_steps_4"))
    assert [r.row_ids for r in baseline.steps] == [r.row_ids for r in warm.steps]
    assert baseline.steps[4].learning_rate == pytest.approx(2e-3 * 4 / 10)
    assert warm.steps[4].learning_rate == pytest.approx(2e-3)
    assert verdict(user / "out")["verdict"] == "GO"
    same = run_pilot("verify", "out", *words[:1], "optim.learning_rate=2e-3", cwd=user)
    assert same.returncode == 0, same.stdout + same.stderr
    other = run_pilot("verify", "out", "+recipe=mine", cwd=user)
    assert other.returncode == 4 and "optim.learning_rate: 0.002 -> 0.001" in other.stdout
