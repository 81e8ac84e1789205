"""How far the learning rate may be raised before a run is worse or breaks. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pilot.arms.specs import RATE
from pilot.checks.common import num
from pilot.compare.paired import DIVERGED, WORSE
from pilot.records import Outcome

_MEASURED = (Outcome.COMPLETED, Outcome.STOPPED, Outcome.DECIDED)


def margin_table(base_rate: float, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The margin from the rows of the arms table: ``stable up to learning_rate x 3``.

    Among arms of a higher rate, by rising rate: up to the last one before the first that diverged
    or is worse than the baseline. Arms that were not measured are passed over.

    Args:
        base_rate: the baseline's peak learning rate.
        rows: ``arms`` of the verdict.
    """
    scales = sorted(
        (float(row["value"]) / base_rate, str(row["words"]))
        for row in rows
        if row["variable"] == RATE and row["status"] in _MEASURED and _rate(row) > base_rate
    )
    stable, first_bad, word = None, None, ""
    for scale, found in scales:
        if found in (DIVERGED, WORSE):
            first_bad, word = scale, found
            break
        stable = scale
    parts = [f"stable up to learning_rate x {num(stable)}"] if stable is not None else []
    if first_bad is not None:
        parts.append(f"{word} at learning_rate x {num(first_bad)}")
    return {
        "sentence": ", ".join(parts) or "no arm of a higher learning rate was measured",
        "stable_up_to": stable,
        "bad_from": first_bad,
        "word": word,
    }


def _rate(row: Mapping[str, Any]) -> float:
    try:
        return float(row["value"])
    except ValueError:
        return math.nan
