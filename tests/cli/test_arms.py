"""Arms of whole pilots as real processes: forks, identities, losses, kills."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pilot.view import ArmView, load
from tests.cli.test_pilot_kills import arm_processes, start, wait_for_steps
from tests.cli.userdir import make_user_dir, verdict
from tests.conftest import RunPilot

# A row that is first drawn at step 13 has a loss twenty times as large: that step alone is clipped.
HEAVY_ROW = """
import numpy as _np

class Heavy(TinyRecipe):
    def __init__(self):
        super().__init__(num_rows=256)
        order = _np.load(ORDER) if ORDER else None
        self.heavy = self.train[int(order[12 * 8])] if ORDER else None

    def collate(self, examples):
        batch = super().collate(examples)
        weight = [20.0 if e is self.heavy else 1.0 for e in examples]
        return {**batch, "weight": torch.tensor(weight)}

    def losses(self, model, batch):
        return super().losses(model, batch) * batch["weight"]

def build(settings, *, sequence_length, seed):
    return Heavy()
"""


def arms_of(root: Path) -> dict[str, dict[str, Any]]:
    """The arms of a verdict by title."""
    rows: Any = verdict(root)["arms"]
    return {row["title"]: row for row in rows}


def losses(arm: ArmView) -> list[tuple[int, float, float, float]]:
    """What the steps of an arm measured, in the order of their steps."""
    steps = (*arm.steps, *arm.cooldown)
    return [(r.step, r.loss, r.grad_norm, r.param_norm) for r in steps]


def test_a_fork_equals_the_run_from_the_start(tmp_path: Path, run_pilot: RunPilot) -> None:
    first = make_user_dir(tmp_path / "order", patch="ORDER = ''\n" + HEAVY_ROW)
    assert run_pilot("+recipe=tiny", cwd=first).returncode == 0
    order = first / "out" / "order.npy"
    patch = f"ORDER = {str(order)!r}\n" + HEAVY_ROW
    forked = make_user_dir(tmp_path / "forked", patch=patch)
    words = ("optim.max_grad_norm=2.0", "arms.max_grad_norm=1.0")
    done = run_pilot("+recipe=tiny", *words, cwd=forked)
    whole = make_user_dir(tmp_path / "whole", patch=patch)
    assert run_pilot("+recipe=tiny", "optim.max_grad_norm=null", cwd=whole).returncode == 0
    view, straight = load(forked / "out"), load(whole / "out").baseline
    clipped = [r.step for r in view.arms["baseline"].steps if r.clip_coef < 1.0]
    assert clipped and 9 <= clipped[0] <= 13, done.stdout + done.stderr
    arm = view.arms["clip_off"]
    fork = arm.job.fork_step
    assert fork is not None and clipped[0] - 4 <= fork < clipped[0]
    assert straight is not None and losses(arm) == losses(straight)
    assert losses(arm) != losses(view.arms["baseline"])
    assert [v.at for v in arm.validations] == [v.at for v in straight.validations]
    assert arm.num_own_steps == 31 - fork
    sha = [
        json.loads(p.read_text())["sha256"]
        for p in (forked / "out/arms/baseline/checkpoints").glob(f"*{fork}/manifest.json")
    ]
    assert [arm.lineage["parent"], arm.lineage["fork_step"]] == ["baseline", fork]
    assert [arm.lineage["checkpoint_sha256"]] == [arm.lineage["fork_sha256"]] == sha


OWN_GENERATOR = """
    def losses(self, model, batch):
        if not hasattr(self, "own"):
            self.own = torch.Generator().manual_seed(5)
        noise = 1.0 + 0.1 * torch.rand((), generator=self.own)
        return super().losses(model, batch) * (noise if model.training else 1.0)
"""


@pytest.mark.slow
def test_a_fork_that_is_not_the_baseline_begins_at_the_start(
    tmp_path: Path, run_pilot: RunPilot
) -> None:
    """A recipe's own generator is in no checkpoint: the forked arm would draw other numbers."""
    head, tail = HEAVY_ROW.split("    def losses")[0], "def build" + HEAVY_ROW.split("def build")[1]
    first = make_user_dir(tmp_path / "order", patch="ORDER = ''\n" + HEAVY_ROW)
    assert run_pilot("+recipe=tiny", cwd=first).returncode == 0
    order = first / "out" / "order.npy"
    losses_of = OWN_GENERATOR.replace("* (noise", '* batch["weight"] * (noise')
    patch = f"ORDER = {str(order)!r}\n" + head + losses_of.lstrip("\n") + "\n" + tail
    root = make_user_dir(tmp_path / "own", patch=patch)
    words = ("optim.max_grad_norm=2.0", "arms.max_grad_norm=1.0")
    done = run_pilot("+recipe=tiny", *words, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    view = load(root / "out")
    arm, baseline = view.arms["clip_off"], view.arms["baseline"]
    clipped = [r.step for r in baseline.steps if r.clip_coef < 1.0]
    assert clipped and 9 <= clipped[0] <= 13
    assert "a state of its own" in str(arm.lineage["fork_refused"])
    assert arm.job.fork_step is None and arm.num_own_steps == 31
    assert [record.step for record in arm.steps] == [record.step for record in baseline.steps]


@pytest.mark.slow
def test_arms_that_are_the_baseline_are_not_run(tmp_path: Path, run_pilot: RunPilot) -> None:
    patch = """
class Fixed(TinyRecipe):
    def build_model(self, scale):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return super().build_model(scale)

def build(settings, *, sequence_length, seed):
    return Fixed(dropout=0.0)
"""
    root = make_user_dir(tmp_path / "same", patch=patch)
    add = "arms.add=[{tracking.log_text: true}]"
    words = ("arms.max_grad_norm=1.0", "arms.num_replicas=2", add)
    done = run_pilot("+recipe=tiny", *words, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    arms = arms_of(root / "out")
    assert arms["clip off"]["status"] == "identical" and arms["clip off"]["num_own_steps"] == 0
    assert "never clipped: identical" in done.stdout
    assert arms["log_text true"]["status"] == "identical"
    for name in ("replica 1", "replica 2"):
        assert arms[name]["status"] == "identical" and arms[name]["num_own_steps"] == 8
    assert {a["words"] for a in arms.values() if a["role"] == "arm"} >= {"no difference"}
    noise: Any = verdict(root / "out")["noise"]
    assert noise["seed_matters"] is False and noise["sd"] == 0.0
    cost: Any = verdict(root / "out")["cost"]
    assert cost["num_steps"] == 2 * 31 + 2 * 8
    # The second time the stored floor replaces the replicas.
    again = run_pilot("+recipe=tiny", *words, "arms.noise_dir=noise", "out_dir=one", cwd=root)
    assert again.returncode == 0
    third = run_pilot("+recipe=tiny", *words, "arms.noise_dir=noise", "out_dir=two", cwd=root)
    assert third.returncode == 0, third.stdout + third.stderr
    assert arms_of(root / "two")["replica 1"]["status"] == "not run"
    stored: Any = verdict(root / "two")["noise"]
    assert stored["source"] == "stored" and stored["seed_matters"] is False


TROUBLE = """
import os as _os, signal as _signal, time as _time

class Troubled(TinyRecipe):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.calls = kind, 0

    def collate(self, examples):
        self.calls += 1
        if self.calls > 12:
            if self.kind == "raise":
                raise ValueError("this arm raises")
            if self.kind == "kill":
                _os.kill(_os.getpid(), _signal.SIGKILL)
            if self.kind == "hang":
                _time.sleep(600)
            if self.kind == "memory":
                raise MemoryError("no room")
        return super().collate(examples)

def build(settings, *, sequence_length, seed):
    return Troubled(settings.get("trouble"))
"""


def test_an_arm_in_trouble_costs_only_itself(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_user_dir(tmp_path / "trouble", patch=TROUBLE)
    path = root / "conf/recipe/tiny.yaml"
    path.write_text(
        path.read_text().replace("  module: tiny\n", "  module: tiny\n  trouble: none\n")
    )
    kinds = ("raise", "kill", "hang", "memory")
    add = "arms.add=[" + ",".join(f"{{recipe.trouble: {kind}}}" for kind in kinds) + "]"
    words = (add, "launcher.timeout_secs=25", "launcher.max_restarts=1")
    done = run_pilot("+recipe=tiny", *words, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    arms = arms_of(root / "out")
    found = {kind: (arms[f"trouble {kind}"]["status"], arms[f"trouble {kind}"]) for kind in kinds}
    assert {kind: status for kind, (status, _) in found.items()} == {
        "raise": "exception",
        "kill": "lost",
        "hang": "lost",
        "memory": "out_of_memory",
    }
    assert "killed by a signal 2 times" in found["kill"][1]["sentence"]
    assert "launcher.timeout_secs = 25" in found["hang"][1]["sentence"]
    assert "this arm raises" in found["raise"][1]["sentence"]
    for kind in kinds:
        assert found[kind][1]["words"] == "not compared"
        assert "\n" not in found[kind][1]["sentence"]
    assert arms["lr x1/3"]["status"] == "completed"
    assert verdict(root / "out")["verdict"] == "GO"


SLOW_ARMS = """
import time as _time

class SlowRecipe(TinyRecipe):
    def collate(self, examples):
        _time.sleep(0.05)
        return super().collate(examples)

def build(settings, *, sequence_length, seed):
    return SlowRecipe()
"""


@pytest.mark.slow  # test_pilot_kills.py is quick and kills other parts
def test_a_kill_among_arms_then_resume_runs_only_what_is_missing(
    tmp_path: Path, run_pilot: RunPilot
) -> None:
    words = ("arms.num_replicas=2", "arms.add=[{optim.momentum: 0.5}]", "optim=sgd")
    whole = make_user_dir(tmp_path / "whole", patch=SLOW_ARMS)
    assert run_pilot("+recipe=tiny", *words, cwd=whole).returncode in (0, 3, 4)
    root = make_user_dir(tmp_path / "killed", patch=SLOW_ARMS)
    process = start(root, *words)
    wait_for_steps(root / "out/arms/replica_2/steps.001.jsonl", 10, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    deadline = time.monotonic() + 10
    while arm_processes(root / "out") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert arm_processes(root / "out") == []
    before = (root / "out/arms/lr_x1_3/outcome.json").stat().st_mtime_ns
    done = run_pilot("resume", "out", cwd=root)
    assert done.returncode == json.loads((whole / "out/verdict.json").read_text())["exit_code"]
    assert (root / "out/arms/lr_x1_3/outcome.json").stat().st_mtime_ns == before
    one, other = load(whole / "out"), load(root / "out")
    for name in one.arms:
        assert losses(one.arms[name]) == losses(other.arms[name]), name
    mine, theirs = arms_of(root / "out"), arms_of(whole / "out")
    for title in theirs:
        assert mine[title]["effect"] == theirs[title]["effect"]
    assert verdict(root / "out")["noise"] == verdict(whole / "out")["noise"]
    assert (root / "out/findings.jsonl").read_bytes() == (whole / "out/findings.jsonl").read_bytes()


def test_if_not_go_leaves_the_others_out(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_user_dir(tmp_path / "lazy")
    done = run_pilot("+recipe=tiny", "arms=default", "arms.when=if_not_go", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    statuses = {title: row["status"] for title, row in arms_of(root / "out").items()}
    assert statuses["lr x1/3"] == "completed"
    assert {statuses[t] for t in ("lr x3", "lr x1/10", "replica 1")} == {"not run"}
    assert "if_not_go" in arms_of(root / "out")["lr x3"]["sentence"]
