"""Whole pilots of recipes of the user's own: streams, own optimizers, contracts that are broken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pilot.view import load, load_arm
from tests.cli.test_pilot_kills import wait_for_steps
from tests.cli.userdir import joined, make_user_dir, verdict
from tests.conftest import RunPilot, environment

# Rows for ever, drawn at random; two groups; a scheduler that is full_run's.
STREAM = """
import itertools, random, time as _time

class Streamed(TinyRecipe):
    facts = None

    def __init__(self, limit, secs):
        super().__init__()
        rows, self._secs = list(self.train), secs

        def draw():
            for _ in range(limit) if limit else itertools.count():
                yield rows[random.randrange(len(rows))]

        self.train = draw

    def collate(self, examples):
        _time.sleep(self._secs)
        return super().collate(examples)

    def build_optimizer(self, model, optim):
        rate = optim["learning_rate"]
        groups = [
            {"params": model.head.parameters(), "lr": rate},
            {"params": model.embed.parameters(), "lr": 0.5 * rate},
        ]
        return torch.optim.AdamW(groups)

    def build_scheduler(self, optimizer, num_steps):
        from math import cos, pi
        def factor(done):
            return done / 5 if done < 5 else 0.5 * (1 + cos(pi * (done - 5) / (num_steps - 5)))
        return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)

def build(settings, *, sequence_length, seed):
    return Streamed(settings.get("limit"), settings.get("secs", 0.0))
"""


def make_stream_dir(root: Path, settings: str = "") -> Path:
    """The tiny recipe as a stream with its own optimizer."""
    make_user_dir(root, patch=STREAM)
    path = root / "conf/recipe/tiny.yaml"
    text = path.read_text().replace("defaults:\n", "defaults:\n  - override /optim: own\n")
    path.write_text(text.replace("  module: tiny\n", f"  module: tiny\n{settings}"))
    return root


def test_a_healthy_stream_with_its_own_optimizer_is_go(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_stream_dir(tmp_path / "u")
    done = run_pilot("+recipe=tiny", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    view = load(root / "out")
    baseline, lower = view.arms["baseline"], view.arms["lr_x1_3"]
    assert len(baseline.steps) == 25 and len(baseline.cooldown) == 6
    assert {r.row_ids for r in baseline.steps} == {()}
    assert [r.row_hash for r in baseline.steps] == [r.row_hash for r in lower.steps]
    for one, other in zip(baseline.steps, lower.steps, strict=True):
        assert one.learning_rate == pytest.approx(view.plan.schedule.learning_rate_at(one.step))
        assert other.learning_rate == pytest.approx(one.learning_rate / 3, rel=1e-5)
    assert view.survey["num_train_rows"] is None and view.survey["num_parameters"] is not None
    evidence = baseline.experiment("determinism")
    assert evidence is not None and evidence.values["relative_spread"] == 0.0
    assert baseline.experiment("longest_sample") is None
    found = verdict(root / "out")
    assert found["verdict"] == "GO"
    coverage = found["coverage"]
    assert isinstance(coverage, dict) and isinstance(found["not_measured"], list)
    assert coverage["num_rows"] is None and coverage["num_rows_drawn"] == 25 * 8
    assert {s["source"] for s in coverage["sources"]} == {"a", "b"}
    assert sum(s["num_rows_drawn"] for s in coverage["sources"]) == 25 * 8
    text = " ".join(found["not_measured"])
    for words in ("it is a stream", "behind its first rows", "check order"):
        assert words in text
    assert "of a stream" in done.stdout


@pytest.mark.slow
def test_a_stream_that_ends_is_no_go_with_its_step(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_stream_dir(tmp_path / "u", "  limit: 100\n")
    done = run_pilot("+recipe=tiny", cwd=root)
    assert done.returncode == 3, done.stdout + done.stderr
    outcome = json.loads((root / "out/arms/baseline/outcome.json").read_text())
    assert (outcome["where"], outcome["step"], outcome["last_step"]) == ("data", 13, 12)
    assert outcome["message"] == "the training data ended after 100 rows"


@pytest.mark.slow
def test_kill_9_then_resume_skips_the_stream_forward(tmp_path: Path, run_pilot: RunPilot) -> None:
    words = [sys.executable, "-m", "pilot", "+recipe=tiny", "arms.learning_rate_scales=[]"]
    whole = make_stream_dir(tmp_path / "whole")
    killed = make_stream_dir(tmp_path / "killed", "  secs: 0.1\n")
    run_pilot(*words[3:], cwd=whole)
    process = subprocess.Popen(words, cwd=killed, env=environment(), stdout=subprocess.DEVNULL)
    wait_for_steps(killed / "out/arms/baseline/steps.001.jsonl", 15, process)
    process.kill()
    process.wait()
    done = run_pilot("resume", str(killed / "out"), cwd=killed)
    assert joined(killed / "out/arms/baseline") == joined(whole / "out/arms/baseline")
    baseline = load_arm(killed / "out/arms/baseline")
    assert baseline.num_attempts == 2 and baseline.lineage["resumed_from_step"] >= 12
    assert "its stream gave the same rows again" in str(verdict(killed / "out")["warnings"])
    assert done.returncode in (0, 4), done.stdout + done.stderr


def test_a_broken_contract_is_named_at_once_before_anything_runs(
    tmp_path: Path, run_pilot: RunPilot
) -> None:
    patch = """
class Broken(TinyRecipe):
    def __init__(self):
        super().__init__()
        self.train, self.collate = {}, 3

    def build_optimizer(self, model, optim):
        return None

def build(settings, *, sequence_length, seed):
    return Broken()
"""
    root = make_user_dir(tmp_path / "u", patch=patch)
    done = run_pilot("+recipe=tiny", cwd=root)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "3 mistakes" in done.stderr
    for words in ("recipe's collate", "recipe's train", "optim._target_ = torch.optim.AdamW"):
        assert words in done.stderr
    assert not (root / "out/arms").exists()


def test_a_loss_of_the_wrong_shape_is_named_by_the_survey(
    tmp_path: Path, run_pilot: RunPilot
) -> None:
    patch = """
class Broken(TinyRecipe):
    def losses(self, model, batch):
        return super().losses(model, batch).mean()

def build(settings, *, sequence_length, seed):
    return Broken()
"""
    root = make_user_dir(tmp_path / "u", patch=patch)
    done = run_pilot("+recipe=tiny", cwd=root)
    assert done.returncode == 2, done.stdout + done.stderr
    for words in ("recipe's losses = shape ()", "one value per example", "loss(model, batch)"):
        assert words in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["preference", "rl"])
def test_a_loss_that_is_no_measure_is_inconclusive_unless_said(
    tmp_path: Path, run_pilot: RunPilot, objective: str
) -> None:
    """Rows are pairs or episodes: one unit each, and a loss that may be below 0."""
    patch = """
class Units(TinyRecipe):
    num_supervised = None

    def losses(self, model, batch):
        return super().losses(model, batch) / 10 - 0.1

def build(settings, *, sequence_length, seed):
    return Units()
"""
    root = make_user_dir(tmp_path / "u", patch=patch)
    words = ("+recipe=tiny", f"+recipe.objective={objective}")
    done = run_pilot(*words, "out_dir=one", cwd=root)
    assert done.returncode == 4, done.stdout + done.stderr
    known = ("gates.validation.need=optional", "gates.progress.need=optional")
    done = run_pilot(*words, *known, "out_dir=two", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    found = load(root / "two").arms["baseline"]
    assert {r.num_supervised_tokens for r in found.steps} == {8}
    assert set(found.validations[0].token_counts) == {1}


TRAINER = """
import torch
from pathlib import Path
from tests.engines.trainers import make_rows, make_trainer

class Rows(torch.utils.data.IterableDataset):
    def __iter__(self):
        rows = make_rows(96)
        while True:
            yield from rows

def build_trainer():
    return make_trainer(
        Path("their_output"), max_steps=MAX_STEPS, train=Rows(), evaluate=make_rows(24, seed=1),
        learning_rate=1e-2, dropout=0.1, lr_scheduler_type="constant_with_warmup",
    )
"""
TRAINER_YAML = """\
# @package _global_
defaults:
  - override /engine: transformers
  - override /arms: reference
recipe: {name: mine, trainer: "train.py:build_trainer"}
full_run: {schedule_steps: MAX_STEPS, warmup_steps: 3, schedule: constant}
batch: {micro_batch_size: 4}
optim: {learning_rate: 1.0e-2, max_grad_norm: 1.0}
pilot: {min_peak_steps: 40, cooldown_steps: 8, seed: 7}
tracking: {uri: null}
out_dir: out
"""


def make_trainer_dir(root: Path, max_steps: int) -> Path:
    """A Trainer on a stream and the configuration that describes it."""
    (root / "conf" / "recipe").mkdir(parents=True)
    for path, text in (("train.py", TRAINER), ("conf/recipe/mine.yaml", TRAINER_YAML)):
        (root / path).write_text(text.replace("MAX_STEPS", str(max_steps)))
    return root


@pytest.mark.slow
def test_a_trainer_on_a_stream_is_go(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_trainer_dir(tmp_path / "u", 400)
    done = run_pilot("+recipe=mine", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    view = load(root / "out")
    baseline, lower = view.arms["baseline"], view.arms["lr_x1_3"]
    assert len(baseline.steps) == 43 and len(baseline.cooldown) == 8
    assert [r.row_hash for r in baseline.steps] == [r.row_hash for r in lower.steps]
    assert len({r.row_hash for r in baseline.steps}) == 24  # 96 rows, 4 a step
    assert view.plan.extension_steps == 0 and baseline.experiment("determinism") is None
    text = str(verdict(root / "out")["not_measured"])
    assert "it is a stream" in text and "do not come again" in text


@pytest.mark.slow
def test_a_cool_down_behind_a_trainers_loop_needs_rows(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_trainer_dir(tmp_path / "u", 46)
    done = run_pilot("+recipe=mine", cwd=root)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "a stream's rows cannot be drawn behind it" in done.stderr
