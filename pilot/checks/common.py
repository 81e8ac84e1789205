"""Small things that several checks need: numbers as words, rows as words, the last validations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pilot.compare.paired import Difference
from pilot.records import ValidationRecord
from pilot.view import ArmView, PilotView

_SHOWN_ROWS = 8
_SHOWN_TENSORS = 5
# Objectives whose loss on held-out rows says how good the model is, in one unit over the whole run.
_MEASURES = ("lm", "regression")
_PLACES = {
    "before": "before the first step",
    "warmup_end": "at the end of the warm-up",
    "mid_peak": "in the middle",
    "peak_end": "at the end of the peak segment",
    "run_end": "at the end of the run",
    "cooldown_end": "after the cool-down",
}


def num(value: float) -> str:
    """A number for a sentence: four significant digits."""
    return f"{value:.4g}"


def plural(count: int, word: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def rows_text(row_ids: Sequence[int], total: int | None = None) -> str:
    """Row ids for a sentence, at most eight of them; ``total`` when only some are listed."""
    total = len(row_ids) if total is None else total
    if not row_ids:
        return plural(total, "row")
    shown = ", ".join(str(row) for row in row_ids[:_SHOWN_ROWS])
    more = total - len(row_ids[:_SHOWN_ROWS])
    head = "row" if total == 1 else "rows"
    return f"{head} {shown}" + (f" and {more} more" if more > 0 else "")


def tensors_text(tensors: Sequence[Mapping[str, Any]]) -> str:
    """Names of ``{name, num_elements}``, the largest first, at most five."""
    ordered = sorted(tensors, key=lambda t: (-int(t["num_elements"]), str(t["name"])))
    more = len(ordered) - _SHOWN_TENSORS
    text = ", ".join(str(t["name"]) for t in ordered[:_SHOWN_TENSORS])
    return text + (f" and {more} more" if more > 0 else "")


def no_measure(view: PilotView) -> str:
    """Why the validation loss is no measure of quality; empty for the objectives where it is.

    The loss of a policy or a preference is near zero, may be negative, and compares with another
    policy at every step: neither its change nor a percentage of it means anything.
    """
    objective = str(view.survey.get("objective", "lm"))
    if objective in _MEASURES:
        return ""
    return f"the loss of objective {objective} is no measure of quality"


def change_text(difference: Difference) -> str:
    """A difference with its uncertainty and its count."""
    if not math.isfinite(difference.se):
        return f"{difference.value:+.4g} (no standard error, n {difference.num_examples})"
    return f"{difference.value:+.4g} (SE {difference.se:.2g}, n {difference.num_examples})"


def place_text(at: str) -> str:
    """A planned validation in words, as it stands after a number."""
    return _PLACES.get(at, f"at {at.replace('_', ' ')}")


def last_validations(arm: ArmView) -> dict[tuple[str, str], ValidationRecord]:
    """The validations by (place, set) in the order of their first record; the last attempt wins."""
    return {(record.at, record.name): record for record in arm.validations}
