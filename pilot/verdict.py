"""From gates to the verdict: GO, NO-GO or INCONCLUSIVE, and never GO by silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilot.checks.registry import (
    FAIL,
    GATE_NAMES,
    UNDETERMINED,
    WARN,
    CheckInfo,
    CheckResult,
    all_checks,
)
from pilot.gates import Gates
from pilot.records import Finding

GO, NO_GO, INCONCLUSIVE = "GO", "NO-GO", "INCONCLUSIVE"
PASS, NOT_MEASURED, WAIVED = "pass", "not_measured", "waived"

# Worst first: a gate with several checks has the worst of their states. A check that measured
# nothing outweighs a passing or warning one, so that it cannot hide behind it.
_WORST = (FAIL, UNDETERMINED, NOT_MEASURED, WARN, PASS)
_NO_CHECK = "this version has no check for it"


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """One condition of the verdict.

    ``status`` is pass, warn, fail, undetermined, not_measured or waived; ``judged`` is the status
    before the waiver. ``waived`` holds the waiver's reason. ``sentence`` is its evidence, or why
    nothing was measured.
    """

    name: str
    need: str
    status: str
    judged: str
    sentence: str
    limit: str
    limit_source: str
    waived: str
    checks: tuple[str, ...]
    findings: tuple[Finding, ...]


def gate_results(gates: Gates, results: Mapping[str, CheckResult]) -> tuple[GateResult, ...]:
    """Every gate of the configuration in its order, from the results of the checks by name."""
    return tuple(_gate(name, gates, results) for name in GATE_NAMES)


def _gate(name: str, gates: Gates, results: Mapping[str, CheckResult]) -> GateResult:
    infos = [info for info in all_checks() if info.gate == name and info.name in results]
    own = [(info, results[info.name]) for info in infos]
    states = [_state(result) for _, result in own] or [NOT_MEASURED]
    judged = min(states, key=_WORST.index)
    reason = gates.waive.get(name)
    info, result = _deciding(own, judged)
    return GateResult(
        name=name,
        need=str(getattr(gates, name).need),
        status=judged if reason is None else WAIVED,
        judged=judged,
        sentence=(result.sentence if result.measured else result.reason) if result else _NO_CHECK,
        limit=result.limit if result else "",
        limit_source=info.limit_source if info else "",
        waived=reason or "",
        checks=tuple(info.name for info, _ in own),
        findings=tuple(finding for _, result in own for finding in result.findings),
    )


def _state(result: CheckResult) -> str:
    """The state of one check: its worst finding; notes do not count."""
    if not result.measured:
        return NOT_MEASURED
    severities = {finding.severity for finding in result.findings}
    return next((s for s in (FAIL, UNDETERMINED, WARN) if s in severities), PASS)


def _deciding(
    own: Sequence[tuple[CheckInfo, CheckResult]], judged: str
) -> tuple[CheckInfo | None, CheckResult | None]:
    """The check that gave the gate its state."""
    return next((pair for pair in own if _state(pair[1]) == judged), (None, None))


def decide(
    gates: Gates, results: Sequence[GateResult], *, num_steps: int, num_warnings: int = 0
) -> str:
    """The verdict's word.

    NO-GO when a gate that is not waived fails. Else INCONCLUSIVE when one is undetermined, when a
    required one was not measured or is absent, when no step was trained, when no gate was measured
    at all, or, with ``gates.strict``, on any warning. Else GO.

    Args:
        gates: the configuration of the gates.
        results: one result per gate; a gate that is missing counts as not measured.
        num_steps: steps that the baseline trained.
        num_warnings: warnings of checks that belong to no gate.
    """
    by_name = {result.name: result for result in results}
    status = {n: by_name[n].status if n in by_name else NOT_MEASURED for n in GATE_NAMES}
    if FAIL in status.values():
        return NO_GO
    required = [name for name in GATE_NAMES if getattr(gates, name).need == "required"]
    silent = num_steps == 0 or not {PASS, WARN} & set(status.values())
    missing = any(status[name] == NOT_MEASURED for name in required)
    if silent or missing or UNDETERMINED in status.values():
        return INCONCLUSIVE
    warned = num_warnings > 0 or WARN in status.values()
    return INCONCLUSIVE if gates.strict and warned else GO


def blocking(gates: Gates, results: Sequence[GateResult]) -> tuple[GateResult, ...]:
    """The gates that keep the verdict from GO, those that decide first in front.

    ``finite`` goes before ``outcome`` where it failed at an earlier step: NaN makes code raise.

    Failures; without any, undetermined and unmeasured required gates; without any, under
    ``gates.strict``, warnings.
    """
    order = sorted(results, key=lambda r: _PRIORITY.index(r.name))
    failed = [r for r in order if r.status == FAIL]
    if failed:
        return _by_step(failed)
    open_ones = tuple(
        r
        for r in order
        if r.status == UNDETERMINED or (r.status == NOT_MEASURED and r.need == "required")
    )
    if open_ones or not gates.strict:
        return open_ones
    return tuple(r for r in order if r.status == WARN)


def _by_step(failed: Sequence[GateResult]) -> tuple[GateResult, ...]:
    """``outcome`` behind ``finite`` when that failed at an earlier step."""
    names = [r.name for r in failed]
    if "outcome" not in names or "finite" not in names:
        return tuple(failed)
    outcome, finite = failed[names.index("outcome")], failed[names.index("finite")]
    raised, spoilt = _first_failure(outcome), _first_failure(finite)
    if raised is None or spoilt is None or spoilt >= raised:
        return tuple(failed)
    rest = [r for r in failed if r is not outcome]
    place = rest.index(finite) + 1
    return (*rest[:place], outcome, *rest[place:])


def _first_failure(gate: GateResult) -> int | None:
    steps = [f.step for f in gate.findings if f.severity == FAIL and f.step is not None]
    return min(steps, default=None)


# What explains most comes first: illegal labels explain an exception, an exception explains missing
# steps, a wrong rate explains a non-finite value, and that a bad validation.
_PRIORITY = (
    "labels",
    "outcome",
    "schedule",
    "finite",
    "movement",
    "invariance",
    "events",
    "validation",
    "progress",
    "coverage",
    "memory",
    "resume",
    "early_damage",
)
