"""A note on the full run's own order: are the sources mixed, is epoch 2 another permutation?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pilot.checks.common import num, plural
from pilot.checks.registry import NOTE, WARN, CheckResult, not_measured, register
from pilot.gates import Gates
from pilot.records import Finding
from pilot.view import ArmView, PilotView

NAME = "order"
SOURCE = "a random permutation stays below the bound with at least 99.9 %"
LIMIT = "no run of one source as long as a random order never has"


@register(
    name=NAME,
    gate=None,
    category="data",
    limit_source=SOURCE,
    cost="none: the order is computed",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Warn when sources come in blocks or the second epoch repeats the first; else a note.

    Judges ``survey.order_audit``; without it, or for an order of no rows, nothing was measured. A
    single source is never in blocks. The arm is not looked at.
    """
    audit = view.survey.get("order_audit") or {}
    if not int(audit.get("num_rows") or 0):
        return not_measured("no audit of the full run's order", LIMIT)
    found = tuple(_judge(audit, view.rows.source_names))
    return CheckResult(measured=True, findings=found, sentence=found[0].sentence, limit=LIMIT)


def _judge(audit: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[Finding]:
    run, bound = audit.get("longest_run"), audit.get("longest_run_bound")
    code = audit.get("longest_run_source")
    source = names[code] if isinstance(code, int) and 0 <= code < len(names) else "unknown"
    numbers = {key: value for key, value in audit.items() if isinstance(value, (int, float))}
    if audit.get("blocked"):
        text = f"sources come in blocks: {run} rows in a row of {source} (random: below {bound})"
        todo = "shuffle over all sources before training"
        yield _finding(WARN, text, numbers, source, todo)
    else:
        expected = num(float(audit.get("expected_longest_run") or 0.0))
        text = (
            f"{plural(int(audit.get('num_sources') or 0), 'source')} mixed over "
            f"{audit['num_rows']} rows: longest run {run} (random: about {expected})"
        )
        yield _finding(NOTE, text, numbers, "", "")
    if audit.get("second_epoch_differs") is False:
        text = "the second epoch repeats the order of the first"
        yield _finding(WARN, text, {}, "", "shuffle again at every epoch")


def _finding(
    severity: str, text: str, numbers: Mapping[str, Any], source: str, todo: str
) -> Finding:
    return Finding(
        check=NAME,
        severity=severity,
        category="data",
        sentence=text,
        numbers=numbers,
        limit=LIMIT,
        limit_source=SOURCE,
        obj=source,
        todo=todo,
    )
