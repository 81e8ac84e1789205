"""The verdict in words: why, what to do next, what was not measured, the warnings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from pilot.arms.tables import arms_in_order
from pilot.cause import Remedy
from pilot.checks.common import plural
from pilot.checks.registry import (
    FAIL,
    UNDETERMINED,
    WARN,
    CheckResult,
    all_checks,
    skipped_names,
    unknown_names,
)
from pilot.data.known import is_stream
from pilot.records import Finding
from pilot.verdict import GO, NO_GO, NOT_MEASURED, PASS, WAIVED, GateResult
from pilot.view import ArmView, PilotView

# Gates whose advice is about the user's own code or data, whoever trained it.
_MENDED = ("outcome", "labels", "finite", "movement", "schedule")


def why(
    word: str,
    gates: Sequence[GateResult],
    blockers: Sequence[GateResult],
    warnings: Sequence[str],
) -> str:
    """One sentence with the numbers: the deciding gate's, and which others agree."""
    if word == GO:
        return _why_go(gates, len(warnings))
    if not blockers:
        if warnings:
            return f"gates.strict: {warnings[0]}"
        return "nothing was trained and judged, so nothing speaks for GO"
    first, others = blockers[0], blockers[1:]
    reason = f"{first.name}: {_sentence(first)}"
    if first.status == NOT_MEASURED:
        reason = f"required gate {first.name} was not measured: {first.sentence}"
    names = ", ".join(gate.name for gate in others)
    verb = "failed too" if word == NO_GO else "open too"
    return f"{reason} ({verb}: {names})" if others else reason


def _why_go(gates: Sequence[GateResult], num_warnings: int) -> str:
    passed = sum(gate.status in (PASS, WARN) for gate in gates)
    numbers = [
        gate.sentence
        for gate in gates
        if gate.name in ("validation", "progress") and gate.status in (PASS, WARN)
    ]
    tail = [f"{plural(num_warnings, 'warning')}"] if num_warnings else []
    for status, what in ((WAIVED, "waived"), (NOT_MEASURED, "not measured")):
        names = [gate.name for gate in gates if gate.status == status]
        tail.extend([f"{what}: {', '.join(names)}"] if names else [])
    head = f"{plural(passed, 'gate')} passed"
    return "; ".join([head, *numbers, *tail])


def _sentence(gate: GateResult) -> str:
    finding = _deciding(gate)
    return finding.sentence if finding else gate.sentence


def _deciding(gate: GateResult) -> Finding | None:
    for severity in (FAIL, UNDETERMINED, WARN):
        for finding in gate.findings:
            if finding.severity == severity:
                return finding
    return None


def next_action(
    word: str, view: PilotView, blockers: Sequence[GateResult], remedy: Remedy | None
) -> str:
    """One command or action. ``DIR`` stands for the pilot's folder."""
    if view.is_watched:
        return _after_watching(word, blockers, remedy)
    given = shlex.join(view.words or (f"+recipe={view.plan.recipe}",))
    if word == GO:
        return (
            f"start the full run, bound to this verdict: python -m pilot verify DIR {given} "
            "&& YOUR_COMMAND"
        )
    if remedy is not None:
        return f"pilot the remedy ({remedy.status}): python -m pilot {_with(given, view, remedy)}"
    for gate in blockers:
        finding = _deciding(gate)
        if finding is not None and finding.todo:
            return finding.todo
        if gate.status == NOT_MEASURED:
            return f"measure {gate.name}, or judge with gates.waive.{gate.name}=REASON"
    return "python -m pilot resume DIR" if blockers else "look at the warnings"


def _after_watching(word: str, blockers: Sequence[GateResult], remedy: Remedy | None) -> str:
    """The records of ``pilot.PilotCallback``: nothing that can be resumed, no verdict to bind."""
    if word == GO:
        return "nothing: this run was watched, not piloted; its GO starts no other run"
    change = f"change it: {remedy.override} ({remedy.status}); then " if remedy else ""
    for gate in blockers:
        finding = _deciding(gate)
        todo = finding.todo if finding and finding.check in _MENDED else ""
        if todo and not change and "python -m pilot" not in todo:
            return todo
    return (
        f"{change}let pilot train the beginning of this run, with arms: name what builds the "
        "Trainer in recipe.trainer (conf/engine/README.md)"
    )


def _with(given: str, view: PilotView, remedy: Remedy) -> str:
    """The command's words with the remedy in the place of what it replaces."""
    key = remedy.override.partition("=")[0]
    words = [w for w in view.words if w.lstrip("+").partition("=")[0] != key]
    return shlex.join([*words, remedy.override]) if view.words else f"{given} {remedy.override}"


def not_measured_lines(
    view: PilotView, results: Mapping[str, CheckResult], judged: tuple[GateResult, ...]
) -> list[str]:
    """What was not measured: gates, checks that inform only, and what the plan says."""
    planned = view.plan.not_measured
    lines = [
        f"gate {gate.name} ({gate.need}): {gate.sentence}"
        for gate in judged
        if gate.judged == NOT_MEASURED
        and (gate.checks or not any(gate.name in line for line in planned))
    ]
    lines.extend(
        f"check {info.name}: {results[info.name].reason}"
        for info in all_checks()
        if info.gate is None and not results[info.name].measured
    )
    lines.extend(f"checks.skip names no check: {n}" for n in unknown_names(skipped_names(view)))
    return list(dict.fromkeys([*lines, *planned]))


def warning_lines(
    view: PilotView, results: Mapping[str, CheckResult], judged: tuple[GateResult, ...]
) -> list[str]:
    """Warnings of gates that are not waived, of other checks, and of the plan."""
    waived = {check for gate in judged if gate.status == WAIVED for check in gate.checks}
    lines = [
        f"{finding.check}: {finding.sentence}"
        for info in all_checks()
        for finding in results[info.name].findings
        if finding.severity == WARN and info.name not in waived
    ]
    return [*lines, *view.plan.warnings]


def restart_lines(view: PilotView) -> list[str]:
    """Arms that were killed and resumed: said, but no reason to trust their records less."""
    return [
        f"arm {arm.job.arm} needed {plural(arm.num_attempts, 'attempt')}: it was killed and resumed"
        + _resumed_stream(view, arm)
        for arm in arms_in_order(view)
        if arm.num_attempts > 1
    ]


def _resumed_stream(view: PilotView, arm: ArmView) -> str:
    """Whether a stream gave the same rows again: it was skipped forward by drawing them."""
    if not is_stream(view.survey):
        return ""
    evidence = arm.experiment("resumed_stream")
    if evidence is None:
        return "; whether its stream gave the same rows again is not known"
    if evidence.values["same_rows"]:
        return "; its stream gave the same rows again"
    return f", on other rows from step {evidence.step} on: its stream does not repeat itself"
