"""What the system says of this process: its peak memory, the limit it must stay under, its age."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_OWN = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")
_ROOTS = {"v2": (_MOUNT, _MOUNT / "unified"), "v1": (_MOUNT / "memory",)}
_EVENTS = {"v2": "memory.events", "v1": "memory.oom_control"}
_LIMITS = {"v2": "memory.max", "v1": "memory.limit_in_bytes"}


def process_age_secs() -> float:
    """Seconds since this process began, its imports among them; 0 where the system cannot say."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # starttime of proc(5): after the boot
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


def peak_memory_bytes(device: torch.device) -> int | None:
    """Peak since the last reset: allocated bytes on a GPU, resident set (VmHWM) on Linux CPUs."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    return _status_bytes("VmHWM")


def reset_peak(device: torch.device) -> None:
    """Begin a new peak; does nothing where the system cannot."""
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def memory_limit_bytes(device: torch.device) -> int | None:
    """The bytes this process may use: the GPU's, or the least of rlimit, cgroup and machine."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    limits = [_machine_bytes(), *_cgroup_bytes(), *_rlimit_bytes()]
    known = [limit for limit in limits if limit]
    return min(known) if known else None


def num_oom_kills() -> int:
    """How often the kernel has killed a process of this cgroup for memory (0 where unknown).

    cgroup v2 counts in ``memory.events``, v1 in ``memory.oom_control``; without both, the count of
    the whole machine.
    """
    own = [_counter(path, "oom_kill") for path in _cgroup_files(_EVENTS)]
    known = [count for count in own if count is not None]
    return sum(known) if known else _counter(Path("/proc/vmstat"), "oom_kill") or 0


def _counter(path: Path, key: str) -> int | None:
    """The number behind ``key`` in a file of ``key number`` lines; None where there is none."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    words = [line.split() for line in lines]
    return next((int(w[1]) for w in words if len(w) == 2 and w[0] == key), None)


def _cgroup_files(names: Mapping[str, str], *, ancestors: bool = False) -> list[Path]:
    """The files of this process's own cgroup, v2 and v1, with those above it if asked for.

    In a container the path that the process sees may lie outside of what is mounted: then the
    mounted root is its cgroup.
    """
    found: list[Path] = []
    for version, path in _own_cgroups():
        for root in _ROOTS[version]:
            folders = [root / path.lstrip("/")]
            folders = folders if folders[0].is_dir() else [root]
            while ancestors and folders[-1] != root:
                folders.append(folders[-1].parent)
            found.extend(folder / names[version] for folder in folders)
    return [path for path in found if path.is_file()]


def _own_cgroups() -> list[tuple[str, str]]:
    """From ``/proc/self/cgroup``: (v2 or v1, path) of what may account for memory."""
    try:
        lines = _OWN.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    parts = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    return [
        ("v2" if not controllers else "v1", path)
        for _, controllers, path in parts
        if not controllers or "memory" in controllers.split(",")
    ]


def _status_bytes(key: str) -> int | None:
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _machine_bytes() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _cgroup_bytes() -> list[int]:
    """The limits of this process's cgroup and of those above it."""
    found = []
    for path in _cgroup_files(_LIMITS, ancestors=True):
        try:
            found.append(int(path.read_text(encoding="ascii")))
        except (OSError, ValueError):  # "max": no limit
            continue
    return found


def _rlimit_bytes() -> list[int]:
    limits = []
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return limits
