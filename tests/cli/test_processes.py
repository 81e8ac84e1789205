"""Pilots whose arms are two processes: the verdict of one process, kills, failures, refusals."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pilot.view import ArmView, load_arm
from tests.cli.test_pilot_kills import wait_for_steps
from tests.cli.test_trainer_pilots import YAML
from tests.cli.userdir import joined, verdict
from tests.conftest import RunPilot, environment

SCRIPT = """
import os, signal, time
from pathlib import Path
from tests.engines.trainers import collate, make_rows, make_trainer

HERE, RANK, calls = Path(__file__).parent, os.environ.get("RANK", "0"), []

def watched(rows):
    calls.append(rows)
    time.sleep({secs})
    if RANK == "1" and len(calls) == 75:  # step 22: the validations before it are 51 calls
        {fault}
    return collate(rows)

def build_trainer():
    return make_trainer(
        Path("their_output"), max_steps=400, train=make_rows(96), evaluate=make_rows(24, seed=1),
        learning_rate=1e-2, dropout={dropout}, collator=watched, per_device_train_batch_size={size},
        {more}
    )
"""
ALONE = "arms.learning_rate_scales=[]"
KILL_ONCE = """
        mark = HERE / "killed"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""


def make_dir(
    root: Path,
    num_processes: int,
    *,
    fault: str = "pass",
    dropout: float = 0.0,
    secs: float = 0.0,
    more: str = "",
) -> Path:
    """A Trainer of four rows a step, shared by ``num_processes``."""
    size = 4 // num_processes
    (root / "conf" / "recipe").mkdir(parents=True)
    values = {"fault": fault, "dropout": dropout, "secs": secs, "size": size, "more": more}
    (root / "train.py").write_text(SCRIPT.format(**values))
    text = YAML.format(rate=1e-2).replace("micro_batch_size: 4", f"micro_batch_size: {size}")
    text += f"launcher: {{num_processes: {num_processes}}}\n"
    (root / "conf" / "recipe" / "mine.yaml").write_text(text)
    return root


def baseline(root: Path) -> ArmView:
    return load_arm(root / "out/arms/baseline")


def processes_of(root: Path) -> list[str]:
    """Processes whose command line names this pilot's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended a moment ago
            words = path.read_bytes().split(b"\0")
            found += [path.parent.name for word in words[:8] if str(root).encode() in word]
    return found


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["+recipe=sine_mlp", "launcher.num_processes=2"], "engine=native trains in 1 process"),
        (["+recipe=sine_mlp", "launcher.num_processes=0"], "launcher.num_processes"),
        (["+recipe=sine_mlp", "launcher.num_processes=1000"], "launcher.num_processes"),
    ],
)
def test_what_contradicts_is_refused(run_pilot: RunPilot, words: list[str], text: str) -> None:
    done = run_pilot(*words, "out_dir=out")
    assert done.returncode == 2 and text in done.stderr and "remedy" in done.stderr


@pytest.mark.parametrize("words", [["+recipe=sine_mlp", "out_dir=out"], ["resume", "out"]])
def test_pilot_under_torchrun_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_pilot: RunPilot, words: list[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = run_pilot(*words)
    assert done.returncode == 2 and "launcher.num_processes=N" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_two_processes_give_the_verdict_of_one(tmp_path: Path, run_pilot: RunPilot) -> None:
    one, two = make_dir(tmp_path / "one", 1), make_dir(tmp_path / "two", 2)
    for root in (one, two):
        done = run_pilot("+recipe=mine", cwd=root)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not (root / "their_output").exists()
    assert "4 rows a step of 2 processes" in done.stdout
    for arm in ("baseline", "lr_x1_3"):
        a, b = (load_arm(root / "out/arms" / arm) for root in (one, two))
        mine, theirs = [*a.steps, *a.cooldown], [*b.steps, *b.cooldown]
        assert len(mine) == 51
        for x, y in zip(mine, theirs, strict=True):
            assert (x.row_ids, x.num_tokens) == (y.row_ids, y.num_tokens)
            assert x.learning_rate == y.learning_rate
            assert y.loss == pytest.approx(x.loss, rel=1e-4)
            assert y.grad_norm == pytest.approx(x.grad_norm, rel=1e-4)
    (a, b) = (verdict(root / "out") for root in (one, two))
    assert a["verdict"] == b["verdict"] == "GO"
    statuses: list[Any] = [[(g["name"], g["status"]) for g in v["gates"]] for v in (a, b)]
    assert statuses[0] == statuses[1]
    assert any("the pilot trains in 2 processes" in line for line in b["not_measured"])  # type: ignore[attr-defined]
    fingerprints = [json.loads((r / "out/fingerprint.json").read_text()) for r in (one, two)]
    assert [f["world_size"] for f in fingerprints] == [1, 2]
    assert run_pilot("verify", "out", "+recipe=mine", cwd=two).returncode == 0
    other = run_pilot("verify", "out", "+recipe=mine", "launcher.num_processes=3", cwd=two)
    assert other.returncode == 4 and "world_size: 2 -> 3" in other.stdout


@pytest.mark.slow
def test_a_killed_process_is_a_killed_arm(tmp_path: Path, run_pilot: RunPilot) -> None:
    """Dropout on: the records behind the kill are those of a run that nobody killed."""
    whole = make_dir(tmp_path / "whole", 2, dropout=0.1)
    killed = make_dir(tmp_path / "killed", 2, dropout=0.1, fault=KILL_ONCE.strip())
    for root in (whole, killed):
        done = run_pilot("+recipe=mine", ALONE, cwd=root)
    assert "killed by signal 9; starting again" in done.stderr + done.stdout
    lineage = json.loads((killed / "out/arms/baseline/lineage.json").read_text())
    assert lineage["attempts"] == 2 and lineage["resumed_from_step"] == 16
    assert joined(killed / "out/arms/baseline") == joined(whole / "out/arms/baseline")


@pytest.mark.slow
def test_an_exception_in_one_process_is_the_outcome(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_dir(tmp_path / "u", 2, fault='raise KeyError("gone")')
    done = run_pilot("+recipe=mine", ALONE, cwd=root)
    assert done.returncode == 3, done.stdout + done.stderr
    outcome = baseline(root).outcome
    assert outcome is not None and outcome.status == "exception" and outcome.where == "collate"
    assert outcome.message.startswith("in process 1 of 2: 'gone'") and len(outcome.row_ids) == 2
    assert outcome.step is not None and baseline(root).steps[-1].step == outcome.step - 1
    assert "in process 1 of 2" in done.stdout
    assert processes_of(root) == []


@pytest.mark.slow
def test_kill_9_of_pilot_leaves_no_process_and_it_goes_on(
    tmp_path: Path, run_pilot: RunPilot
) -> None:
    root = make_dir(tmp_path / "u", 2, dropout=0.1, secs=0.1)
    whole = make_dir(tmp_path / "whole", 2, dropout=0.1)
    run_pilot("+recipe=mine", ALONE, cwd=whole)
    words = [sys.executable, "-m", "pilot", "+recipe=mine", ALONE]
    process = subprocess.Popen(words, cwd=root, env=environment(), stdout=subprocess.DEVNULL)
    wait_for_steps(root / "out/arms/baseline/steps.001.jsonl", 12, process)  # type: ignore[arg-type]
    assert len(processes_of(root)) == 3  # the agent and two processes
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while processes_of(root) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_of(root) == []
    run_pilot("resume", str(root / "out"), cwd=root)
    assert joined(root / "out/arms/baseline") == joined(whole / "out/arms/baseline")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("use_cpu=False,", "use_cpu=True"),
        ('accelerator_config={"split_batches": True},', "split_batches=False"),
        ('accelerator_config={"dispatch_batches": True},', "dispatch_batches=False"),
        ('deepspeed={"zero_optimization": {"stage": 2}},', "under DeepSpeed"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    tmp_path: Path, run_pilot: RunPilot, more: str, text: str
) -> None:
    root = make_dir(tmp_path / "u", 2, more=more)
    done = run_pilot("+recipe=mine", cwd=root)
    assert done.returncode == 2 and text in done.stderr, done.stdout + done.stderr


OWN_STATE = """
import math
from transformers import Trainer

class Noisy(Trainer):
    count = 0

    def compute_loss(self, *args, **more):
        loss = super().compute_loss(*args, **more)
        self.count += self.model.training  # no state of pilot's holds it
        return loss * (1 + 1e-3 * math.sin(self.count)) if self.model.training else loss
"""


@pytest.mark.slow
def test_a_fork_that_does_not_hold_begins_again_in_both(
    tmp_path: Path, run_pilot: RunPilot
) -> None:
    root = make_dir(tmp_path / "u", 2, more="kind=Noisy, max_grad_norm=3.5,")
    (root / "train.py").write_text(OWN_STATE + (root / "train.py").read_text())
    words = ["optim.max_grad_norm=3.5", "arms.max_grad_norm=1.0"]
    run_pilot("+recipe=mine", ALONE, *words, cwd=root)
    (arm,) = (path for path in (root / "out/arms").iterdir() if path.name != "baseline")
    lineage = json.loads((arm / "lineage.json").read_text())
    assert "is not the baseline's" in lineage["fork_refused"] and lineage["fork_step"] is None
    steps = load_arm(arm).steps
    assert [r.step for r in steps] == list(range(1, 44))
    assert [r.row_ids for r in steps] == [r.row_ids for r in baseline(root).steps]
