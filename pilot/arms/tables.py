"""The arms of a judged pilot as tables: results, margin, noise floor, cost. Plain values for JSON.

Pure functions of the folder's view.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilot.arms.ending import reason_of, status_of
from pilot.arms.price import STORED
from pilot.arms.settings import Arms
from pilot.checks.common import num, plural
from pilot.compare.effects import Effect, effect
from pilot.compare.noise import noise_floor
from pilot.compare.paired import paired_difference
from pilot.folder import BASELINE
from pilot.records import Outcome, ValidationRecord
from pilot.view import ArmView, PilotView


def arms_in_order(view: PilotView) -> list[ArmView]:
    """The baseline first, the others in the plan's order."""
    return sorted(view.arms.values(), key=lambda arm: (arm.job.order, arm.job.arm))


def arm_settings(view: PilotView) -> Arms:
    """The section ``arms`` of the pilot's configuration; the defaults where there is none."""
    return Arms.model_validate(view.config.get("arms") or {})


def arms_table(view: PilotView) -> list[dict[str, Any]]:
    """One row per arm: what it changed, how it ended, how it compares with the baseline."""
    floor, settings = noise_floor(view), arm_settings(view)
    rows = []
    for arm in arms_in_order(view):
        same = arm.job.arm == BASELINE
        found = None if same else effect(view, settings, arm, floor)
        rows.append(_arm_row(view, arm, found))
    return rows


def _arm_row(view: PilotView, arm: ArmView, found: Effect | None) -> dict[str, Any]:
    baseline, job = view.baseline, arm.job
    reference = baseline.validation(view.plan.final_validation) if baseline else None
    final = arm.validation(view.plan.final_validation)
    row = {
        "name": job.arm,
        "title": job.title,
        "role": job.role,
        "order": job.order,
        "variable": job.variable,
        "value": job.value,
        "baseline_value": job.baseline_value,
        "follows": dict(job.follows),
        "status": status_of(arm),
        "reason": reason_of(arm),
        "num_steps": len(arm.steps),
        "num_own_steps": arm.num_own_steps,
        "num_cooldown_steps": len(arm.cooldown),
        "num_attempts": arm.num_attempts,
        "fork_step": job.fork_step if arm.num_attempts else None,
        "final_loss": final.loss if final else None,
        "difference": None if found is None else difference_dict(reference, final),
        "effect": _effect_dict(found, arm_settings(view)),
        "words": found.word if found else "",
    }
    return {**row, "sentence": _sentence(row, found)}


def _sentence(row: Mapping[str, Any], found: Effect | None) -> str:
    text = str(row["title"])
    if row["variable"]:
        text += f" ({row['variable']}={row['value']})"
    if found is not None:
        return f"{text}: {'; '.join(part for part in (found.word, found.sentence) if part)}"
    text = f"{text}: {str(row['status']).replace('_', ' ')}, {plural(row['num_steps'], 'step')}"
    if row["num_attempts"] > 1:
        text += f" in {row['num_attempts']} attempts"
    if row["final_loss"] is not None:
        text += f", validation {num(row['final_loss'])}"
    return text


def _effect_dict(found: Effect | None, settings: Arms) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "word": found.word,
        "value": found.value,
        "half_width": found.half_width,
        "level": None if found.half_width is None else 1.0 - settings.error_rate,
        "reference_loss": found.reference_loss,
        "basis": found.basis,
        "num": found.num,
        "step": found.step,
    }


def difference_dict(
    reference: ValidationRecord | None, other: ValidationRecord | None
) -> dict[str, Any] | None:
    """The paired difference of two validations as plain values, or None: nothing to compare."""
    if reference is None or other is None:
        return None
    try:
        change = paired_difference(reference, other)
    except ValueError:
        return None
    return {"value": change.value, "se": change.se, "num_examples": change.num_examples}


def noise_table(view: PilotView) -> dict[str, Any]:
    """The noise floor that the words of the arms stand on."""
    floor = noise_floor(view)
    return {
        "source": floor.source,
        "sd": floor.sd_validation,
        "sd_steps": floor.sd_steps,
        "num_runs": floor.num_runs,
        "seed_matters": floor.seed_matters,
        "sentence": floor.sentence,
    }


def _is_stored(arm: ArmView) -> bool:
    """Whether a stored noise floor stands in for this replica."""
    return arm.absence.get("reason") == STORED


def saved_steps(view: PilotView) -> list[dict[str, Any]]:
    """Steps that were planned and need not be trained, arm by arm, and why."""
    whole = view.plan.pilot_steps + view.plan.cooldown_steps
    saved = []
    for arm in arms_in_order(view):
        less = whole - arm.num_own_steps
        status = status_of(arm)
        if arm.job.arm == BASELINE or less <= 0 or (arm.outcome is None and not _is_stored(arm)):
            continue
        why = reason_of(arm) or status
        if status == Outcome.COMPLETED and arm.job.fork_step:
            why = f"starts from the baseline's step {arm.job.fork_step}"
        elif status == Outcome.DECIDED:
            why = f"decided at step {arm.outcome.last_step if arm.outcome else ''}: {why}"
        saved.append({"arm": arm.job.title, "num_steps": less, "why": why})
    return saved
