"""How far the learning rate may be raised before a run is worse or breaks. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pilot.arms.specs import RATE
from pilot.checks.common import num
from pilot.compare.paired import BETTER, DIVERGED, LARGER, SAME, SMALLER, WORSE

_WORDS = (BETTER, SAME, SMALLER, LARGER, WORSE, DIVERGED)


def margin_table(
    base_rate: float, rows: Sequence[Mapping[str, Any]], *, is_sound: bool
) -> dict[str, Any]:
    """The margin from the rows of the arms table: ``stable up to learning_rate x 3``.

    Among arms of a higher rate, by rising rate: up to the last one before the first that diverged,
    is worse than the baseline, or has a larger loss of which the noise is unknown. Arms that were
    not compared are passed over. A baseline that is not sound has no margin.

    Args:
        base_rate: the baseline's peak learning rate.
        rows: ``arms`` of the verdict.
        is_sound: the baseline completed and is not NO-GO.
    """
    if not is_sound:
        sentence = "none: the baseline itself did not pass"
        return {"sentence": sentence, "stable_up_to": None, "bad_from": None, "word": ""}
    scales = sorted(
        (float(row["value"]) / base_rate, str(row["words"]))
        for row in rows
        if row["variable"] == RATE and row["words"] in _WORDS and _rate(row) > base_rate
    )
    stable, first_bad, word = None, None, ""
    for scale, found in scales:
        if found in (DIVERGED, WORSE, LARGER):
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
