"""Gate ``coverage``: the pilot trained, validated and saw what it had to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pilot.checks.common import plural
from pilot.checks.coverage_table import coverage_table
from pilot.checks.registry import UNDETERMINED, WARN, CheckResult, register
from pilot.gates import Gates
from pilot.records import Finding, Outcome
from pilot.view import ArmView, PilotView

NAME = "coverage"
SOURCE = "what a pilot run is: whole warm-up, peak segment, validations, every source, the extremes"
LIMIT = "every planned step and validation; every source; the longest rows"


@register(
    name=NAME,
    gate="coverage",
    category="undetermined",
    limit_source=SOURCE,
    cost="none",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Undetermined when a planned step or validation is missing or the data was not covered.

    A source or the longest rows never seen: undetermined under ``pilot.data=representative``, a
    warning under ``prefix`` (the full run's own order decides what comes first). A run that ended
    early by itself is only said to have ended: the gate that fails decides. Values are not looked
    at, so NaN and constants do not matter; an empty arm is not covered. Of a stream only steps and
    validations are judged: the plan lists what is not known of it.
    """
    table = coverage_table(view, arm)
    ended = arm.outcome is not None and arm.outcome.status != Outcome.COMPLETED
    found = [_ended(arm, view)] if ended else [*_gaps(table), *_data_gaps(table)]
    fine = _fine(table, arm)
    return CheckResult(
        measured=True,
        findings=tuple(found),
        sentence=found[0].sentence if found else fine,
        limit=LIMIT,
        numbers={"num_rows_seen": table["num_rows_seen"], "num_rows": table["num_rows"]},
    )


def _fine(table: Mapping[str, Any], arm: ArmView) -> str:
    steps = (
        f"{plural(len(arm.steps), 'step')} and {len(arm.cooldown)} of cool-down, "
        f"{sum(v['done'] for v in table['validations'])} validations"
    )
    if table["num_rows"] is None:
        return f"{steps}, {plural(table['num_rows_drawn'], 'row')} of a stream"
    seen = sum(1 for source in table["sources"] if source["num_rows_seen"])
    return (
        f"{steps}, {seen} of {plural(len(table['sources']), 'source')}, "
        f"longest row {table['extremes']['longest_tokens_seen']} tokens"
    )


def _ended(arm: ArmView, view: PilotView) -> Finding:
    done, planned = len(arm.steps), view.plan.pilot_steps
    text = f"the run ended by itself after {done} of {plural(planned, 'step')}: not judged further"
    return _finding(UNDETERMINED, text, {"num_trained": done, "num_steps": planned}, "")


def _gaps(table: Mapping[str, Any]) -> Iterator[Finding]:
    for segment in table["segments"]:
        done, planned = segment["num_trained"], segment["num_steps"]
        if done < planned:
            text = f"{segment['segment']}: {done} of {plural(planned, 'step')} trained"
            numbers = {"num_trained": done, "num_steps": planned}
            yield _finding(UNDETERMINED, text, numbers, "python -m pilot resume DIR")
    missing = [v["at"] for v in table["validations"] if not v["done"]]
    if missing:
        places = ", ".join(place.replace("_", " ") for place in missing)
        text = f"{plural(len(missing), 'planned validation')} missing: {places}"
        todo = "python -m pilot resume DIR"
        yield _finding(UNDETERMINED, text, {"missing": missing}, todo)


def _data_gaps(table: Mapping[str, Any]) -> Iterator[Finding]:
    prefix = table["data"] == "prefix"
    severity = WARN if prefix else UNDETERMINED
    todo = "use pilot.data=representative" if prefix else "train longer: raise pilot.min_peak_steps"
    if table["num_unknown_rows"] and table["num_rows"]:
        count = table["num_unknown_rows"]
        text = f"{plural(count, 'drawn row id')} not in the row table: the data changed since"
        yield _finding(UNDETERMINED, text, {"num_unknown_rows": count}, "survey again")
    if table["num_rows"] is None:  # a stream: nobody knows what else is in it
        return
    if not table["num_rows"]:
        text = "what was seen of the data is not known: no table of its rows"
        yield _finding(WARN, text, {}, "")
        return
    extremes = table["extremes"]
    unseen = extremes["sources_not_seen"]
    if unseen:
        text = f"{plural(len(unseen), 'source')} never seen: {', '.join(unseen)}"
        yield _finding(severity, text, {"sources": unseen}, todo)
    if not extremes["longest_seen"]:
        text = (
            f"the longest rows ({extremes['longest_tokens']} tokens) were never seen; "
            f"longest seen: {extremes['longest_tokens_seen']}"
        )
        yield _finding(severity, text, dict(extremes), todo)


def _finding(severity: str, text: str, numbers: Mapping[str, Any], todo: str) -> Finding:
    return Finding(
        check=NAME,
        severity=severity,
        category="undetermined" if severity == UNDETERMINED else "data",
        sentence=text,
        numbers=numbers,
        limit=LIMIT,
        limit_source=SOURCE,
        todo=todo,
    )
