"""The checks by name: which gate each belongs to, what it costs, and how it is run.

A check is a pure rule ``check(view, gates, arm) -> CheckResult``: ``arm`` is the baseline for the
verdict, or another arm when a remedy is judged the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pilot.gates import Gates
from pilot.plan import baseline_job
from pilot.records import Finding
from pilot.view import ArmView, PilotView

NOTE, WARN, UNDETERMINED, FAIL = "note", "warn", "undetermined", "fail"
GATE_NAMES = tuple(name for name in Gates.model_fields if name not in ("strict", "waive"))


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What a check found.

    ``sentence`` is the gate's line; ``reason`` says why nothing was measured. ``limit`` is the rule
    with its numbers. ``numbers`` are plain values for tables.
    """

    measured: bool
    findings: tuple[Finding, ...] = ()
    sentence: str = ""
    reason: str = ""
    limit: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)


Check = Callable[[PilotView, Gates, ArmView], CheckResult]


@dataclass(frozen=True, kw_only=True)
class CheckInfo:
    """A registered check. ``gate`` null: its findings inform, they decide nothing."""

    name: str
    gate: str | None
    category: str
    cost: str
    limit_source: str
    judge: Check


_CHECKS: dict[str, CheckInfo] = {}


def register(
    *, name: str, gate: str | None, category: str, cost: str, limit_source: str
) -> Callable[[Check], Check]:
    """Register a check under a unique name.

    Raises:
        ValueError: the name is taken, or there is no such gate.
    """
    if name in _CHECKS:
        raise ValueError(f"a check named {name!r} is registered already")
    if gate is not None and gate not in GATE_NAMES:
        raise ValueError(f"check {name!r}: no such gate {gate!r}")

    def add(judge: Check) -> Check:
        _CHECKS[name] = CheckInfo(
            name=name,
            gate=gate,
            category=category,
            cost=cost,
            limit_source=limit_source,
            judge=judge,
        )
        return judge

    return add


def all_checks() -> tuple[CheckInfo, ...]:
    """Every registered check, by name."""
    return tuple(_CHECKS[name] for name in sorted(_CHECKS))


def not_measured(reason: str, limit: str = "") -> CheckResult:
    """The result of a check that had nothing to judge."""
    return CheckResult(measured=False, reason=reason, limit=limit)


def skipped_names(view: PilotView) -> tuple[str, ...]:
    """The names in ``checks.skip``."""
    return tuple(str(name) for name in (view.config.get("checks") or {}).get("skip") or ())


def unknown_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``names`` that are no check."""
    return tuple(name for name in names if name not in _CHECKS)


def run_check(name: str, view: PilotView, gates: Gates, arm: ArmView | None = None) -> CheckResult:
    """Run one check on ``arm`` (default: the baseline, an empty one when it never ran).

    A check named in ``checks.skip`` is not run and says so.
    """
    if name in skipped_names(view):
        return not_measured("skipped by checks.skip")
    return _CHECKS[name].judge(view, gates, arm or view.baseline or absent_arm(view))


def absent_arm(view: PilotView) -> ArmView:
    """A baseline that never ran: nothing was measured, and every check says so."""
    job = baseline_job(view.plan, module_path="")
    return ArmView(
        job=job,
        steps=(),
        cooldown=(),
        validations=(),
        evidence=(),
        resources=(),
        outcome=None,
        num_attempts=0,
    )
