"""Kills, signals and resumption of whole pilots."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pilot.view import load_arm
from tests.cli.userdir import joined, make_user_dir, verdict
from tests.conftest import RunPilot, environment


def start(root: Path, *words: str) -> subprocess.Popen[str]:
    """A pilot of the tiny recipe in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "pilot", "+recipe=tiny", *words],
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


@pytest.mark.slow
def test_a_lost_arm_costs_only_what_needed_it(tmp_path: Path) -> None:
    root = make_user_dir(tmp_path / "lost", patch=SLOW)
    process = start(root)
    kills = 0
    while process.poll() is None:
        for pid in arm_processes(root / "out/arms/lr_x1_3"):
            if pid != process.pid and (root / "out/arms/lr_x1_3/steps.001.jsonl").is_file():
                os.kill(pid, signal.SIGKILL)
                kills += 1
        time.sleep(0.3)
    assert process.returncode == 4 and kills >= 3
    assert verdict(root / "out")["verdict"] == "INCONCLUSIVE"
    assert len(load_arm(root / "out/arms/baseline").steps) == 25


def test_lost_records_and_a_changed_recipe(
    finished: Path, tmp_path: Path, run_pilot: RunPilot
) -> None:
    """A lost machine loses records that were not on disk yet; a resume must not leave a hole."""
    root = make_user_dir(tmp_path / "lost", patch=SLOW)
    process = start(root)
    path = root / "out/arms/baseline/steps.001.jsonl"
    wait_for_steps(path, 14, process)
    process.terminate()
    assert process.wait(timeout=30) == 143
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:9]) + lines[9][:20])
    recipe = root / "recipes/tiny.py"
    original = recipe.read_text()
    recipe.write_text(original.replace("_time.sleep(0.1)", "_time.sleep(0.2)"))
    refused = run_pilot("resume", "out", cwd=root)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "changed since this pilot began" in refused.stderr and "code tiny.py" in refused.stderr
    recipe.write_text(original)
    done = run_pilot("resume", "out", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert joined(root / "out/arms/baseline") == joined(finished / "arms/baseline")


def test_a_reader_that_goes_away_costs_nothing(finished: Path) -> None:
    words = f"{sys.executable} -m pilot judge {finished} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", words], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
