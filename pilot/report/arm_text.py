"""What the projections say about one arm of a verdict: what it changed, its result, its difference.

Pure functions of one row of ``verdict["arms"]``. Keys that an older pilot's file lacks are taken as
not known. Every text is on one line and free of control characters; markup is not escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pilot.arms.specs import CLIP, RATE, REPLICA
from pilot.folder import BASELINE
from pilot.records import Outcome
from pilot.report.words import number, one_line

Row = Mapping[str, Any]
STEP_LOSS = "step loss"
FOOTNOTE = "* of the training loss, step by step; the others of the final validation"
LOST, NOT_RUN, DIVERGED = "lost", "not run", "diverged"
# How an arm without a whole run is called; the number of its last step follows.
_ENDED = {
    Outcome.DECIDED: "ended",
    Outcome.STOPPED: "stopped",
    Outcome.EXCEPTION: "exception",
    Outcome.OUT_OF_MEMORY: "out of memory",
    LOST: "lost",
}
_WORDS_OF_NOTHING = ("", "not compared")


class ArmText(NamedTuple):
    """The cells of one arm."""

    title: str
    changed: str
    result: str
    difference: str
    steps: str


def arm_texts(verdict: Mapping[str, Any]) -> list[ArmText]:
    """The cells of every arm, in the order of the verdict, as short as they can be."""
    start = int((verdict.get("plan") or {}).get("start_step") or 0)
    return [
        ArmText(
            title(arm),
            changed(arm, short=True),
            result(arm, start),
            difference(arm),
            str(own_steps(arm)),
        )
        for arm in verdict.get("arms") or ()
    ]


def title(arm: Row) -> str:
    """The arm's name for people."""
    return one_line(arm.get("title") or str(arm.get("name") or "").replace("_", " "))


def is_baseline(arm: Row) -> bool:
    """Whether the row is the recipe unchanged."""
    return BASELINE in (arm.get("role"), arm.get("name"))


def changed(arm: Row, *, short: bool = False) -> str:
    """``optim.learning_rate 0.001 -> 0.000333``.

    ``short`` leaves the key out where the title says it, and else its group.
    """
    variable = one_line(arm.get("variable") or "")
    if not variable:
        return "the recipe" if is_baseline(arm) else "-"
    value, before = one_line(arm.get("value")), one_line(arm.get("baseline_value") or "")
    values = f"{before} -> {value}" if before else value
    if not short:
        return f"{variable} {values}"
    key = variable.rpartition(".")[2]
    named = {RATE: "lr ", CLIP: "clip "}.get(variable, f"{key} ")
    return values if before and title(arm).startswith(named) else f"{key} {values}"


def word(arm: Row) -> str:
    """The word of the comparison (better, worse, ...), or an empty string."""
    text = one_line((arm.get("effect") or {}).get("word") or arm.get("words") or "")
    return "" if text in _WORDS_OF_NOTHING else text


def result(arm: Row, start_step: int = 0) -> str:
    """``worse, ended at 58``: the word of the comparison, and where the arm ended if early."""
    status, said = str(arm.get("status") or ""), word(arm)
    if status == Outcome.COMPLETED:
        if said or is_baseline(arm):
            return said or "reference"
        return REPLICA if arm.get("role") == REPLICA else one_line(arm.get("words") or "completed")
    if status not in _ENDED:  # identical, not run
        return one_line(status.replace("_", " ")) or "-"
    step = last_step(arm, start_step)
    if said == DIVERGED and step is not None:
        return f"{said} at {step}"
    ended = f"{_ENDED[status]} at {step}" if step is not None else _ENDED[status]
    return f"{said}, {ended}" if said else ended


def last_step(arm: Row, start_step: int = 0) -> int | None:
    """The step at which an arm ended; None when it has no step."""
    decided = (arm.get("effect") or {}).get("step")
    if arm.get("status") == Outcome.DECIDED and decided is not None:
        return int(decided)
    num_steps = int(arm.get("num_steps") or 0)
    return start_step + num_steps if num_steps else None


def difference(arm: Row) -> str:
    """``+0.166 ± 0.031``; with SE where there is no interval; ``-`` for nothing.

    ``*`` marks a difference of the training loss of the steps instead of the final validation.
    """
    effect, change = arm.get("effect") or {}, arm.get("difference") or {}
    value, half = _known(effect.get("value")), _known(effect.get("half_width"))
    mark = " *" if effect.get("basis") == STEP_LOSS else ""
    if value == 0 and effect.get("basis") == Outcome.IDENTICAL:
        return "0"
    if value is not None and half is not None:
        return f"{_signed(value)} ± {number(half)}{mark}"
    if change.get("value") is None:
        return "-" if value is None else _signed(value) + mark
    return f"{_signed(change['value'])} (SE {number(change.get('se'))})"


def level_text(arms: Sequence[Row]) -> str:
    """``95 %``: the level of the intervals, or an empty string without any or with several."""
    levels = {(a.get("effect") or {}).get("level") for a in arms if has_interval(a)}
    level = levels.pop() if len(levels) == 1 else None
    return f"{100 * level:.3g} %" if isinstance(level, (int, float)) else ""


def has_interval(arm: Row) -> bool:
    """Whether the arm's difference has an interval."""
    return _known((arm.get("effect") or {}).get("half_width")) is not None


def has_footnote(arms: Sequence[Row]) -> bool:
    """Whether a difference is marked with ``*`` and needs ``FOOTNOTE``."""
    return any(difference(arm).endswith("*") for arm in arms)


def own_steps(arm: Row) -> int:
    """Steps that the arm trained itself, cool-down included."""
    own = arm.get("num_own_steps")
    if own is not None:
        return int(own)
    return int(arm.get("num_steps") or 0) + int(arm.get("num_cooldown_steps") or 0)


def reason(arm: Row) -> str:
    """Why an arm is identical, lost, not run or broken; an empty string for others."""
    if arm.get("status") in (Outcome.COMPLETED, Outcome.DECIDED):
        return ""
    return one_line(arm.get("reason") or "")


def _known(value: Any) -> float | None:
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if known and math.isfinite(value) else None


def _signed(value: float) -> str:
    text = number(value)
    return f"+{text}" if value > 0 else text
