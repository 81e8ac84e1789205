"""Gate ``memory``: some memory is left at the longest sample, in validation and in saving."""

from __future__ import annotations

from pilot.checks.common import num
from pilot.checks.registry import WARN, CheckResult, not_measured, register
from pilot.gates import Gates
from pilot.records import Finding, Resource
from pilot.view import ArmView, PilotView

NAME = "memory"
SOURCE = "fragmentation and a longer sample than any in the pilot (candidate)"
_PLACES = {
    "memory_longest": "at the longest sample",
    "memory_validation": "in validation",
    "memory_saving": "in saving",
    "memory_step": "in a step",
}


@register(
    name=NAME,
    gate="memory",
    category="memory",
    limit_source=SOURCE,
    cost="one forward and backward of the longest rows",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Warn where 1 - peak / limit is under ``min_headroom_frac``; the tightest place is named.

    Records without a peak or without a limit are left out; without any other, nothing was measured.
    A peak above the limit (swapping) is a negative headroom and warns.
    """
    least = gates.memory.min_headroom_frac
    limit = f"at least {num(100 * least)} % free at the worst moment"
    rooms = [
        (1.0 - r.peak_memory_bytes / r.num_bytes, r)
        for r in arm.resources
        if r.kind in _PLACES and r.peak_memory_bytes is not None and r.num_bytes
    ]
    if not rooms:
        return not_measured("no memory limit is known for this device", limit)
    room, tightest = min(rooms, key=lambda pair: (pair[0], pair[1].kind, pair[1].step))
    text = (
        f"{num(100 * room)} % free {_PLACES[tightest.kind]} (step {tightest.step}): "
        f"{_gib(tightest.peak_memory_bytes)} of {_gib(tightest.num_bytes)} GiB"
    )
    numbers = {"headroom_frac": room, "place": tightest.kind}
    found = (_finding(text, tightest, room, limit),) if room < least else ()
    return CheckResult(measured=True, findings=found, sentence=text, limit=limit, numbers=numbers)


def _gib(num_bytes: int | None) -> str:
    return f"{(num_bytes or 0) / 2**30:.3g}"


def _finding(text: str, resource: Resource, room: float, limit: str) -> Finding:
    return Finding(
        check=NAME,
        severity=WARN,
        category="memory",
        sentence=text,
        step=resource.step,
        numbers={
            "headroom_frac": room,
            "peak_memory_bytes": resource.peak_memory_bytes,
            "limit_bytes": resource.num_bytes,
        },
        limit=limit,
        limit_source=SOURCE,
        obj=_PLACES[resource.kind],
        todo="lower batch.micro_batch_size and raise batch.grad_accum_steps by the same factor",
    )
