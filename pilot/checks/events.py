"""Gate ``events``: spikes and trends of the training loss and the gradient norm (the window tier).

| event (see ``pilot/series``)                          | result                                  |
|-------------------------------------------------------|-----------------------------------------|
| none, or notes only                                   | pass                                    |
| severity ``warn``                                     | warn                                    |
| severity ``fail``: never recovers, slow divergence,   | fail                                    |
| consecutive spikes with a gradient-norm reaction, ... |                                         |
| one that decides, still open after the extension      | undetermined                            |

Kinds with a gate of their own (non-finite values, early damage, validation, progress) are left to
it.
"""

from __future__ import annotations

from pilot.checks.common import plural
from pilot.checks.registry import (
    FAIL,
    NOTE,
    UNDETERMINED,
    WARN,
    CheckResult,
    not_measured,
    register,
)
from pilot.gates import Gates
from pilot.records import Finding
from pilot.series.advice import advice
from pilot.series.types import LOSS, Event
from pilot.view import ArmView, PilotView
from pilot.watching import watch

NAME = "events"
SOURCE = "pilot/series/README.md: measured on public logs of healthy and of failed runs"
LIMIT = "no event that never recovers, diverges or repeats with the gradient norm"
# Judged by the gates finite, early_damage, progress and validation.
ELSEWHERE = (
    "nonfinite_first_step",
    "nonfinite",
    "early_damage",
    "no_progress",
    "validation_not_improving",
    "validation_worsening",
)
_WORST = (FAIL, UNDETERMINED, WARN, NOTE)


@register(
    name=NAME,
    gate="events",
    category="undetermined",
    limit_source=SOURCE,
    cost="none; an undecided event extends the baseline by up to pilot.max_extension_steps",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Judge the events of the steps and of the extension; the cool-down's falling rate is left out.

    NaN and inf are the gate ``finite``'s and never enter a statistic here; missing records are
    gaps; a constant loss has no event. Without a step nothing was measured.
    """
    steps = (*arm.steps, *arm.extension)
    if not steps:
        return not_measured("no step was recorded", LIMIT)
    own, undecided = found_events(view, arm)
    found = [_finding(event, undecided) for event in own]
    found.sort(key=lambda finding: _WORST.index(finding.severity))
    return CheckResult(
        measured=True,
        findings=tuple(found),
        sentence=_sentence(found, len(steps)) + _extended(arm),
        limit=LIMIT,
        numbers={
            "num_steps": len(steps),
            "num_extension_steps": len(arm.extension),
            "events": [_numbers(event) for event in own],
        },
    )


def found_events(view: PilotView, arm: ArmView) -> tuple[list[Event], bool]:
    """The events of this gate, and whether one that decides is still open after the last step."""
    steps = (*arm.steps, *arm.extension)
    monitor = watch(steps, str(view.survey.get("objective", "lm")))
    undecided = monitor.has_open
    monitor.finish()
    return [event for event in monitor.events if event.kind not in ELSEWHERE], undecided


def _sentence(found: list[Finding], num_steps: int) -> str:
    if not found:
        return f"no spike, shift or trend in {plural(num_steps, 'step')}"
    more = len(found) - 1
    return found[0].sentence + (f" (and {more} more)" if more else "")


def _extended(arm: ArmView) -> str:
    more = len(arm.extension)
    return f"; extended by {plural(more, 'step')} to decide it" if more else ""


def _finding(event: Event, undecided: bool) -> Finding:
    look = advice(event.kind, event.hint)
    kind = event.kind.replace("_", " ")
    undecided = undecided and event.series == LOSS  # only these are followed to their end
    is_undecided = undecided and event.is_open and event.severity != FAIL
    ending = "; not decided when the steps ended" if is_undecided else ""
    return Finding(
        check=NAME,
        severity=UNDETERMINED if is_undecided else event.severity,
        category="undetermined",
        sentence=f"{kind} at step {event.first_step}: {event.detail}{ending}",
        step=event.first_step,
        numbers=_numbers(event),
        limit=LIMIT,
        limit_source=SOURCE,
        obj=event.series,
        todo=f"look first at {look.look_first}; then: {look.test}",
    )


def _numbers(event: Event) -> dict[str, object]:
    return {
        "kind": event.kind,
        "series": event.series,
        "first_step": event.first_step,
        "last_step": event.last_step,
        "recovered_step": event.recovered_step,
        "severity": event.severity,
        "confidence": event.confidence,
        "size_sigma": event.size_sigma,
        "size_frac": event.size_frac,
        "grad_norm_lead_steps": event.grad_norm_lead_steps,
    }
