"""What a child run says of its arm: name, tags, note, status. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pilot.folder import PilotFolder
from pilot.records import Outcome
from pilot.report import arm_text
from pilot.report.colours import arm_style, arm_title
from pilot.report.curves import non_finite_steps
from pilot.report.words import one_line
from pilot.tracking.hide import HIDDEN, hide_message, is_secret_key
from pilot.tracking.payload import ORDER_TAG, clean_tags, shared_tags
from pilot.view import ArmView, PilotView

_MAX_NAME_CHARS = 100
_STATUSES = {
    Outcome.EXCEPTION: "FAILED",
    Outcome.OUT_OF_MEMORY: "FAILED",
    arm_text.LOST: "KILLED",
    arm_text.NOT_RUN: "KILLED",
}


def sent_arms(view: PilotView) -> list[ArmView]:
    """The arms that become runs, in their order: those that ran, and those that need not.

    An arm that the budget left out has nothing to show: the parent's table names it.
    """
    arms = [arm for arm in view.arms.values() if arm.num_attempts or arm.outcome is not None]
    return sorted(arms, key=lambda arm: (arm.job.order, arm.job.arm))


def row_of(verdict: Mapping[str, Any], arm: ArmView) -> dict[str, Any]:
    """The arm's row of the verdict; what an older verdict lacks is taken from its job."""
    job = arm.job
    known = {
        "name": job.arm,
        "title": arm_title(job),
        "role": job.role,
        "variable": job.variable,
        "value": job.value,
        "baseline_value": job.baseline_value,
        "status": arm.outcome.status if arm.outcome else arm_text.LOST,
    }
    found = [row for row in verdict.get("arms") or () if row.get("name") == job.arm]
    return {**known, **(found[0] if found else {})}


def child_name(arm: ArmView) -> str:
    """``lr x1/3``: short and the same in every pilot."""
    title = one_line(hide_message(arm_title(arm.job)), _MAX_NAME_CHARS)
    if not is_secret_key(arm.job.variable):
        return title
    return f"{arm.job.variable.rpartition('.')[2]} {HIDDEN}"


def child_tags(view: PilotView, verdict: Mapping[str, Any], arm: ArmView) -> dict[str, str]:
    """The tags of one child; every one is set, so that an old value never stays."""
    job, row = arm.job, row_of(verdict, arm)
    is_baseline = arm is view.baseline
    broken = non_finite_steps(arm)
    word = "reference" if is_baseline else arm_text.word(row) or "not compared"
    return clean_tags(
        {
            **shared_tags(view, verdict),
            "pilot.role": job.role,
            ORDER_TAG: f"{job.order:02d}",
            "pilot.variable": job.variable or "none",
            "pilot.value": _shown(job.variable, job.value) or "none",
            "pilot.changed": changed(row),
            "pilot.word": word,
            "pilot.status": str(row["status"]).replace("_", " "),
            "pilot.why": row.get("sentence") or child_name(arm),
            "pilot.first_nonfinite_step": broken[0] if broken else "none",
            "mlflow.runName": child_name(arm),
            "mlflow.runColor": arm_style(job).colour,
        }
    )


def changed(row: Mapping[str, Any]) -> str:
    """``optim.learning_rate 0.001 -> 0.000333``, with what follows it by interpolation."""
    key = str(row.get("variable") or "")
    values = {name: _shown(key, row.get(name)) for name in ("value", "baseline_value")}
    text = arm_text.changed({**row, **values})
    follows = [f"{name} = {_shown(name, value)}" for name, value in _follows(row)]
    return f"{text}; so {', '.join(follows)}" if follows else text


def _follows(row: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found = row.get("follows")
    return [(str(k), v) for k, v in found.items()] if isinstance(found, Mapping) else []


def _shown(key: str, value: object) -> str:
    text = str(value) if value is not None else ""
    return HIDDEN if text and is_secret_key(key) else text


def child_status(arm: ArmView, row: Mapping[str, Any]) -> str:
    """``FINISHED`` for every result, also a bad one; ``FAILED`` for the recipe's own failures."""
    return _STATUSES.get(str(row.get("status")), "FINISHED")


def arm_config(folder: PilotFolder, view: PilotView, arm: ArmView) -> Mapping[str, Any]:
    """The arm's own resolved configuration; the pilot's when the file is not there."""
    path: Path = folder.arm(arm.job.arm).config
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        found = None
    return found if isinstance(found, Mapping) else view.config
