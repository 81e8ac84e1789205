"""Limits and kills of the control groups that this process belongs to, in either version."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pilot import memory


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own ``/proc/self/cgroup`` and mount."""
    monkeypatch.setattr(memory, "_OWN", tmp_path / "own")
    roots = {"v2": (tmp_path / "fs",), "v1": (tmp_path / "fs" / "memory",)}
    monkeypatch.setattr(memory, "_ROOTS", roots)
    return tmp_path


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_version_2_below_the_root(groups: Path) -> None:
    put(groups / "own", "0::/slurm/job_7\n")
    put(groups / "fs/slurm/job_7/memory.events", "low 0\noom 3\noom_kill 2\n")
    put(groups / "fs/slurm/job_7/memory.max", "max\n")
    put(groups / "fs/slurm/memory.max", "2000000\n")
    assert memory.num_oom_kills() == 2
    assert memory._cgroup_bytes() == [2_000_000]


def test_version_1_among_other_controllers(groups: Path) -> None:
    put(groups / "own", "5:cpu,cpuacct:/other\n4:memory:/job\n1:name=systemd:/\n")
    put(groups / "fs/memory/job/memory.oom_control", "oom_kill_disable 0\noom_kill 1\n")
    put(groups / "fs/memory/job/memory.limit_in_bytes", "1000000\n")
    put(groups / "fs/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory.num_oom_kills() == 1
    assert memory._cgroup_bytes() == [1_000_000, 9223372036854771712]


def test_a_path_that_is_not_mounted_is_the_root(groups: Path) -> None:
    put(groups / "own", "0::/../host/path\n")
    put(groups / "fs/memory.events", "oom_kill 5\n")
    put(groups / "fs/memory.max", "3000000\n")
    assert memory.num_oom_kills() == 5
    assert memory._cgroup_bytes() == [3_000_000]


def test_without_control_groups_the_machine_counts(groups: Path) -> None:
    assert memory._cgroup_files(memory._EVENTS) == []
    assert memory.num_oom_kills() >= 0


def test_the_age_of_this_process() -> None:
    first = memory.process_age_secs()
    time.sleep(0.2)
    assert 0.0 < first < memory.process_age_secs() < first + 60.0
