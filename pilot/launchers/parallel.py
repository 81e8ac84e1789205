"""How many arms run side by side, and with how many threads each."""

from __future__ import annotations

import os
from pathlib import Path

from pilot.config import Launcher

# Side by side, arms may take this share of the memory by the survey's peak: records, validation and
# saving come on top. More would let the kernel kill an arm, which would look like its own fault.
_MEMORY_FRAC = 0.6


def num_cores() -> int:
    """Cores that this process may use: its affinity, or less by a cgroup's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()[:2]
        return max(1, min(cores or 1, int(int(quota) / int(period))))
    except (OSError, ValueError):
        return cores or 1


def parallelism(
    launcher: Launcher, device_type: str, cores: int, num_runs: int
) -> tuple[int, int | None]:
    """Runs at a time and threads of each (None: what torch takes by itself).

    On a CPU the cores are shared out; another device belongs to one arm at a time. What the
    configuration says wins. A run of several processes has as many times the threads.
    """
    if launcher.max_parallel is not None:
        at_once = min(launcher.max_parallel, num_runs)
    elif device_type == "cpu":
        cores_of_each = launcher.num_processes * (launcher.num_threads or 1)
        at_once = min(num_runs, max(1, cores // cores_of_each))
    else:
        at_once = 1
    return at_once, threads_of_each(launcher, device_type, cores, at_once)


def threads_of_each(launcher: Launcher, device_type: str, cores: int, at_once: int) -> int | None:
    """Threads of each process of ``at_once`` runs; None: what torch takes by itself."""
    num_processes = at_once * launcher.num_processes
    if launcher.num_threads is None and num_processes > 1 and device_type == "cpu":
        return max(1, cores // num_processes)
    return launcher.num_threads


def fitting(at_once: int, peak_bytes: int | None, limit_bytes: int | None) -> int:
    """Fewer runs at a time where so many would not fit into memory; at least one."""
    if not peak_bytes or not limit_bytes:
        return at_once
    return max(1, min(at_once, int(_MEMORY_FRAC * limit_bytes / peak_bytes)))
