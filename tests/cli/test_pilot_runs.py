"""Whole pilots as real processes: verdicts, records, kills, resumption, judging again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pilot.folder import load_arm
from pilot.records import to_json
from tests.cli.userdir import make_user_dir
from tests.conftest import RunPilot, environment

JUDGED = ("findings.jsonl", "result.json", "verdict.json", "report.md")


def verdict(root: Path) -> dict[str, object]:
    """The verdict of a pilot."""
    data: dict[str, object] = json.loads((root / "verdict.json").read_text())
    return data


def joined(arm: Path) -> str:
    """The joined step records of an arm, as text."""
    view = load_arm(arm)
    return "\n".join(to_json(record) for record in (*view.steps, *view.cooldown))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed pilot of the tiny recipe."""
    root = make_user_dir(tmp_path_factory.mktemp("finished"))
    done = subprocess.run(
        [sys.executable, "-m", "pilot", "+recipe=tiny"],
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "GO" in done.stdout
    return root / "out"


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
    }
    assert (finished / "figures" / "baseline.png").stat().st_size > 10_000
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
    seeded = make_user_dir(tmp_path / "seeded")
    assert run_pilot("+recipe=tiny", "pilot.seed=1", cwd=seeded).returncode == 0
    first = Path("arms/baseline/steps.001.jsonl")
    assert (finished / first).read_bytes() != (seeded / "out" / first).read_bytes()


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


def start(root: Path) -> subprocess.Popen[str]:
    """A pilot of the tiny recipe in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "pilot", "+recipe=tiny"],
        cwd=root,
        env=environment(),
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for_steps(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Wait until an arm has written ``count`` steps."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if path.is_file() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} has no {count} steps; exit {process.poll()}")


# Steps of 0.1 s: a signal meets the run in its middle.
SLOW = """
import time as _time

class SlowRecipe(TinyRecipe):
    def collate(self, examples):
        _time.sleep(0.1)
        return super().collate(examples)

def build(settings, *, sequence_length, seed):
    return SlowRecipe()
"""


def arm_processes(root: Path) -> list[int]:
    """Processes whose command line names this pilot's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"pilot" in words and any(str(root).encode() in word for word in words):
            found.append(int(path.parent.name))
    return found


def test_kill_9_of_the_pilot_then_resume_gives_the_same_verdict(
    finished: Path, tmp_path: Path, run_pilot: RunPilot
) -> None:
    root = make_user_dir(tmp_path / "killed", patch=SLOW)
    process = start(root)
    wait_for_steps(root / "out/arms/baseline/steps.001.jsonl", 10, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (root / "out" / "verdict.json").exists()
    done = run_pilot("resume", str(root / "out"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    arm = root / "out" / "arms" / "baseline"
    assert load_arm(arm).num_attempts == 2
    assert json.loads((arm / "lineage.json").read_text())["resumed_from_step"] >= 4
    assert joined(arm) == joined(finished / "arms" / "baseline")
    a, b = verdict(finished), verdict(root / "out")
    assert [(g["name"], g["status"]) for g in a["gates"]] == [
        (g["name"], g["status"]) for g in b["gates"]
    ]
    assert a["verdict"] == b["verdict"] and a["why"] == b["why"]


def test_a_killed_arm_is_started_again_from_its_newest_checkpoint(
    finished: Path, tmp_path: Path
) -> None:
    root = make_user_dir(tmp_path / "armkill", patch=SLOW)
    process = start(root)
    wait_for_steps(root / "out/arms/baseline/steps.001.jsonl", 10, process)
    (arm,) = [pid for pid in arm_processes(root / "out/arms/baseline") if pid != process.pid]
    os.kill(arm, signal.SIGKILL)
    assert process.wait(timeout=240) == 0
    assert joined(root / "out/arms/baseline") == joined(finished / "arms/baseline")


def test_sigterm_leaves_no_process_and_can_be_resumed(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_user_dir(tmp_path / "term", patch=SLOW)
    process = start(root)
    wait_for_steps(root / "out/arms/baseline/steps.001.jsonl", 3, process)
    process.terminate()
    assert process.wait(timeout=30) == 143
    assert arm_processes(root / "out") == []
    second = run_pilot("+recipe=tiny", cwd=root)
    assert second.returncode == 2 and "resume" in second.stderr
    assert run_pilot("resume", "out", cwd=root).returncode == 0


def test_two_pilots_in_one_folder(tmp_path: Path, run_pilot: RunPilot) -> None:
    root = make_user_dir(tmp_path / "two", patch=SLOW)
    process = start(root)
    try:
        wait_for_steps(root / "out/arms/baseline/steps.001.jsonl", 1, process)
        second = run_pilot("resume", "out", cwd=root)
        assert second.returncode == 2
        assert f"process {process.pid}" in second.stderr
    finally:
        process.terminate()
        process.wait()
