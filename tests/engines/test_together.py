"""Two processes of one Trainer: the numbers of one, exact states, the rows really drawn."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pilot.folder import PilotFolder, read_json
from pilot.judge import judge, load_gates
from pilot.view import load
from tests.conftest import environment
from tests.engines.test_transformers import attach, make_trainer, run_steps
from tests.engines.together import STEPS

AGENT = ["-m", "torch.distributed.run", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
QUICK = ("same_3", "resumed", "rows_odd", "callback")
SLOW = ("same_1", "branched", "rows_plain", "rows_dropped", "rows_uneven", "rows_split")
SLOWER = ("rows_by_length", "rows_rebalanced", "rows_workers")


def run_together(folder: Path, cases: tuple[str, ...]) -> dict[str, Any]:
    """Run cases of ``together.py`` in two processes."""
    words = [*AGENT, "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *words, "-m", "tests.engines.together", str(folder), *cases],
        env={**environment(), "GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else None,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return {**found, "folder": folder}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A few cases: one start of two processes costs most of the time."""
    return run_together(tmp_path_factory.mktemp("quick"), QUICK)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All others."""
    return run_together(tmp_path_factory.mktemp("slow"), (*SLOW, *SLOWER))


def require_same(found: dict[str, Any], folder: Path, accumulate: int) -> None:
    """Two processes of two rows are one process of four."""
    engine = attach(make_trainer(folder, gradient_accumulation_steps=accumulate))
    one = run_steps(engine, STEPS, before=lambda: engine.request_validation("before"))
    assert len(found["steps"]) == STEPS
    for a, b in zip(one, found["steps"], strict=True):
        for name in ("step", "learning_rate", "num_supervised_tokens", "num_tokens", "row_hash"):
            assert getattr(a, name) == b[name], (a.step, name)
        assert list(a.row_ids) == b["row_ids"] and dict(a.source_counts) == b["source_counts"]
        for name in ("loss", "grad_norm", "clip_coef", "param_norm"):
            assert b[name] == pytest.approx(getattr(a, name), rel=1e-5), (a.step, name)
    assert found["spread"] == [0.0] and found["planned"]
    (mine,) = (v.loss_sums for v in engine.observer.validations)  # type: ignore[attr-defined]
    assert found["validations"][0] == pytest.approx(mine, rel=1e-6)


def test_two_processes_give_the_numbers_of_one(quick: dict[str, Any], tmp_path: Path) -> None:
    require_same(quick["same_3"], tmp_path, 3)


def test_a_state_goes_on_bit_for_bit_in_both(quick: dict[str, Any]) -> None:
    """Dropout on: each process has a random state of its own."""
    found = quick["resumed"]
    assert found == {"equal": [True, True], "steps": 20, "random_states": 2}


def test_rows_of_a_short_last_batch_are_those_drawn(quick: dict[str, Any]) -> None:
    """33 rows in batches of 2: the last one of an epoch is filled up with the first rows again."""
    found = quick["rows_odd"]
    assert found["seen"] == [True, True] and found["records"] and found["planned"]
    assert found["lengths"] == [8, 8, 8, 8, 4, 8, 8, 8, 8, 4, 8, 8]


def test_the_callback_writes_once_what_one_process_writes(
    quick: dict[str, Any], tmp_path: Path
) -> None:
    import pilot

    trainer = make_trainer(tmp_path / "a", max_steps=10)
    trainer.add_callback(pilot.PilotCallback(tmp_path / "records", validation_rows=8))
    trainer.train()
    one, two = load(tmp_path / "records"), load(quick["folder"] / "records")
    assert one.baseline is not None and two.baseline is not None
    assert two.plan.num_processes == 2 and two.plan.rows_per_step == one.plan.rows_per_step == 4
    for a, b in zip(one.baseline.steps, two.baseline.steps, strict=True):
        assert (a.step, a.row_ids, a.num_tokens) == (b.step, b.row_ids, b.num_tokens)
        assert a.learning_rate == b.learning_rate
        assert b.loss == pytest.approx(a.loss, rel=1e-5)
        assert b.grad_norm == pytest.approx(a.grad_norm, rel=1e-5)
    norms = [log["grad_norm"] for log in quick["callback"]["logged"]]
    assert [r.grad_norm for r in two.baseline.steps] == pytest.approx(norms, rel=1e-6)
    for a, b in zip(one.baseline.validations, two.baseline.validations, strict=True):
        assert b.loss_sums == pytest.approx(a.loss_sums, rel=1e-5)
    arm = PilotFolder(quick["folder"] / "records").arm("baseline")
    assert read_json(arm.outcome)["status"] == "completed"
    assert [p.name for p in sorted(arm.root.glob("steps*"))] == ["steps.001.jsonl"]
    results = [judge(v, load_gates(v)).verdict for v in (one, two)]
    assert results[0]["verdict"] == results[1]["verdict"]
    statuses = [{g["name"]: g["status"] for g in r["gates"]} for r in results]
    assert statuses[0] == statuses[1]


@pytest.mark.slow
def test_without_accumulation_too(slow: dict[str, Any], tmp_path: Path) -> None:
    require_same(slow["same_1"], tmp_path, 1)


@pytest.mark.slow
def test_a_branch_goes_back_in_both(slow: dict[str, Any]) -> None:
    assert slow["branched"] == {"rows": True, "again": True, "steps": 14}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SLOW[2:], *SLOWER])
def test_rows_are_those_that_were_drawn(slow: dict[str, Any], name: str) -> None:
    """Whoever shares the rows out: a record has those that the processes have collated."""
    found = slow[name]
    assert found["seen"] == [True, True] and found["records"]
    # A sampler without a seed of its own draws from torch's state: its order is known when drawn.
    assert found["planned"] or name == "rows_by_length"
