"""The JSON of ``diagnose --json``: a stable contract, written down in this folder's README."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from pilot.diagnose.numbers import span
from pilot.diagnose.study import Study, ordered
from pilot.report.words import clean
from pilot.series.advice import advice
from pilot.series.types import Event, Trace

SCHEMA = 1


def to_json(studies: Sequence[Study]) -> str:
    """All runs as one strict JSON object (no NaN, no inf), ending with a newline."""
    tree = {"schema": SCHEMA, "runs": [run(study) for study in studies]}
    return json.dumps(tree, indent=2, allow_nan=False) + "\n"


def run(study: Study) -> dict[str, Any]:
    """One run. ``error`` is there only when the state is ``unreadable``.

    ``series`` counts the points of each series; ``num_steps`` the distinct steps of all. The event
    that decides the state comes first, then the most severe.
    """
    trace, found = study.trace, study.diagnosis
    num_steps, first, last = (span(trace) if trace else None) or (0, None, None)
    row: dict[str, Any] = {
        "source": clean(study.source),
        "format": clean(trace.format) if trace else "",
        "num_steps": num_steps,
        "first_step": first,
        "last_step": last,
        "series": counts(trace) if trace else {},
        "state": found.state,
        "alarm": found.alarm,
        "events": [event(e) for e in ordered(study)],
    }
    return row | ({"error": clean(study.error)} if study.error else {})


def counts(trace: Trace) -> dict[str, int]:
    """Points by series; a validation set is ``validation`` or ``validation/NAME``."""
    found = {name: len(series.steps) for name, series in trace.train.items()}
    for name, series in trace.validations.items():
        found[clean(f"validation/{name}" if name else "validation")] = len(series.steps)
    return found


def event(found: Event) -> dict[str, Any]:
    """One event with its row of the decision table."""
    row = advice(found.kind, found.hint)
    return {
        "kind": found.kind,
        "series": clean(found.series),
        "first_step": int(found.first_step),
        "last_step": int(found.last_step),
        "recovered_step": None if found.recovered_step is None else int(found.recovered_step),
        "severity": found.severity,
        "size_sigma": _finite(found.size_sigma),
        "size_frac": _finite(found.size_frac),
        "confidence": found.confidence,
        "look_first": row.look_first,
        "test": row.test,
        "then": row.then,
    }


def _finite(value: float | None) -> float | None:
    # + 0.0: no "-0.0".
    return float(value) + 0.0 if value is not None and math.isfinite(value) else None
