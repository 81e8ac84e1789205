"""Whole pilots as real processes: verdicts, records, the same bytes again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pilot.view import load_arm
from tests.cli.userdir import make_user_dir, verdict
from tests.conftest import RunPilot, environment

JUDGED = ("findings.jsonl", "result.json", "verdict.json", "report.md")


def test_go_with_everything_on_disk(finished: Path) -> None:
    assert verdict(finished)["verdict"] == "GO"
    baseline = load_arm(finished / "arms" / "baseline")
    assert [r.step for r in baseline.steps] == list(range(1, 26))
    assert [r.step for r in baseline.cooldown] == list(range(26, 32))
    assert [v.at for v in baseline.validations] == [
        "before",
        "warmup_end",
        "peak_end",
        "cooldown_end",
    ]
    assert baseline.outcome is not None and baseline.outcome.status == "completed"
    assert {e.experiment for e in baseline.evidence} == {
        "determinism",
        "longest_sample",
        "movement",
        "start_state",
        "random_state",
    }
    assert (finished / "figures" / "pilot.png").stat().st_size > 10_000
    pinned = [
        json.loads(p.read_text())["reasons"]
        for p in sorted((finished / "arms/baseline/checkpoints").glob("*/manifest.json"))
    ]
    assert pinned[0] == ["start"] and ["warmup_end"] in pinned and ["peak_end"] in pinned


def test_the_lower_rate_arm_changes_the_rate_and_nothing_else(finished: Path) -> None:
    a, b = (load_arm(finished / "arms" / name) for name in ("baseline", "lr_x1_3"))
    assert [r.row_hash for r in a.steps] == [r.row_hash for r in b.steps]
    assert a.steps[0].loss == b.steps[0].loss
    for one, other in zip(a.steps, b.steps, strict=True):
        assert other.learning_rate == pytest.approx(one.learning_rate / 3)
    assert a.steps[-1].loss != b.steps[-1].loss


def test_same_seeds_give_the_same_bytes(
    finished: Path, tmp_path: Path, run_pilot: RunPilot
) -> None:
    again = make_user_dir(tmp_path / "again")
    assert run_pilot("+recipe=tiny", cwd=again).returncode == 0
    other = again / "out"
    for name in ("steps.001.jsonl", "cooldown.001.jsonl", "validations.jsonl", "evidence.jsonl"):
        for arm in ("baseline", "lr_x1_3"):
            path = Path("arms") / arm / name
            assert (finished / path).read_bytes() == (other / path).read_bytes(), path


def test_judging_again_without_torch_gives_the_same_bytes(finished: Path) -> None:
    before = {name: (finished / name).read_bytes() for name in JUDGED}
    for name in JUDGED:
        (finished / name).unlink()
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'mlflow', 'matplotlib', 'tokenizers'):\n"
        "    sys.modules[name] = None\n"
        "from pilot.cli.main import main\n"
        f"sys.exit(main(['judge', {str(finished)!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {name: (finished / name).read_bytes() for name in JUDGED} == before


def test_other_gates_give_another_verdict(
    finished: Path, tmp_path: Path, run_pilot: RunPilot
) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    config = (copy / "config.yaml").read_text()
    import yaml

    gates = yaml.safe_load(config)["gates"]
    gates["memory"]["min_headroom_frac"] = 1.0
    gates["strict"] = True
    (tmp_path / "gates.yaml").write_text(yaml.safe_dump(gates))
    done = run_pilot("judge", str(copy), "--gates", str(tmp_path / "gates.yaml"))
    assert done.returncode == 4, done.stdout + done.stderr
    assert verdict(copy)["verdict"] == "INCONCLUSIVE"
