"""Peak memory of this process and the limit that it must stay under."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


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
    """How often the kernel has killed a process of this cgroup for memory (0 where unknown)."""
    try:
        text = Path("/sys/fs/cgroup/memory.events").read_text(encoding="ascii")
    except OSError:
        return 0
    words = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)
    return int(words.get("oom_kill", 0))


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
    found = []
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            found.append(int(Path(name).read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return found


def _rlimit_bytes() -> list[int]:
    limits = []
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return limits
