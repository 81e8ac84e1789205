"""A note on the determinism floor: how far two equal steps drift apart on this device."""

from __future__ import annotations

import math

from pilot.checks.common import num
from pilot.checks.registry import NOTE, CheckResult, not_measured, register
from pilot.gates import Gates
from pilot.records import Finding
from pilot.view import ArmView, PilotView

NAME = "determinism"
SOURCE = "0 on a CPU; every later replay has to be compared with it"


@register(
    name=NAME,
    gate=None,
    category="undetermined",
    limit_source=SOURCE,
    cost="two steps",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Note the relative spread of one step that was run twice; NaN and inf are said as such.

    Without evidence, or without a spread in it, nothing was measured.
    """
    evidence = arm.experiment("determinism")
    spread = None if evidence is None else evidence.values.get("relative_spread")
    if evidence is None or spread is None:
        first = view.plan.start_step + 1
        return not_measured(f"no evidence: measured before step {first} of the baseline")
    spread, moved = float(spread), float(evidence.values.get("max_param_diff") or 0.0)
    if not math.isfinite(spread):
        text = "two equal steps: one was finite and the other was not"
    elif spread == 0.0 and moved == 0.0:
        text = "two equal steps gave the same bits"
    else:
        text = f"two equal steps differ by {num(spread)} (relative) and {num(moved)} (a weight)"
    finding = Finding(
        check=NAME,
        severity=NOTE,
        category="undetermined",
        sentence=text,
        step=evidence.step,
        numbers={"relative_spread": spread, "max_param_diff": moved},
        limit_source=SOURCE,
    )
    return CheckResult(measured=True, findings=(finding,), sentence=text)
