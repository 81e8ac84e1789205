"""The tables of a judged pilot: arms, validations, cost, checks. Plain values for JSON.

Pure functions of the folder's view. Seconds come from ``resources.jsonl``, all else from the
deterministic records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pilot.checks.common import change_text, last_validations, num, plural
from pilot.checks.registry import CheckResult, all_checks
from pilot.compare import Difference, paired_difference
from pilot.folder import BASELINE
from pilot.plan import BEFORE
from pilot.records import Outcome, ValidationRecord
from pilot.verdict import GateResult
from pilot.view import ArmView, PilotView

_DIGITS = 6


def rounded(value: Any) -> Any:
    """``value`` with every float at six significant digits; NaN and inf stay."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else value
    if isinstance(value, Mapping):
        return {str(key): rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return value


def arms_in_order(view: PilotView) -> list[ArmView]:
    """The baseline first, the others by name."""
    names = sorted(view.arms, key=lambda name: (name != BASELINE, name))
    return [view.arms[name] for name in names]


def arms_table(view: PilotView) -> list[dict[str, Any]]:
    """One row per arm: what it changed, how it ended, its final loss against the baseline's."""
    baseline = view.baseline
    reference = baseline.validation(view.plan.final_validation) if baseline else None
    return [_arm_row(view, arm, reference) for arm in arms_in_order(view)]


def _arm_row(view: PilotView, arm: ArmView, reference: ValidationRecord | None) -> dict[str, Any]:
    final = arm.validation(view.plan.final_validation)
    same = arm.job.arm == BASELINE
    change = None if same else _difference(reference, final)
    status = _status(arm)
    row = {
        "name": arm.job.arm,
        "title": arm.job.title,
        "role": arm.job.role,
        "variable": arm.job.variable,
        "value": arm.job.value,
        "status": status,
        "num_steps": len(arm.steps),
        "num_cooldown_steps": len(arm.cooldown),
        "num_attempts": arm.num_attempts,
        "final_loss": final.loss if final else None,
        "difference": _as_dict(change),
        "words": "" if same else _words(arm, change),
    }
    return {**row, "sentence": _sentence(row, change)}


def _status(arm: ArmView) -> str:
    if arm.outcome is not None:
        return arm.outcome.status
    return "lost" if arm.num_attempts else "not run"


def _words(arm: ArmView, change: Difference | None) -> str:
    """How the arm compares; without replicas there is no noise floor, so no better or worse."""
    if arm.outcome is not None and arm.outcome.status == Outcome.STOPPED:
        return "diverged"
    if change is None or not math.isfinite(change.value):
        return "not compared"
    size = "same" if change.value == 0.0 else ("larger" if change.value > 0.0 else "smaller")
    return f"{size} loss, noise unknown"


def _sentence(row: Mapping[str, Any], change: Difference | None) -> str:
    text = f"{row['title']}: {row['status'].replace('_', ' ')}, {plural(row['num_steps'], 'step')}"
    if row["num_attempts"] > 1:
        text += f" in {row['num_attempts']} attempts"
    if row["variable"]:
        text = f"{text}, {row['variable']}={row['value']}"
    if row["final_loss"] is not None:
        text += f", validation {num(row['final_loss'])}"
    if change is not None:
        text += f", against the baseline {change_text(change)}: {row['words']}"
    return text


def _difference(a: ValidationRecord | None, b: ValidationRecord | None) -> Difference | None:
    if a is None or b is None:
        return None
    try:
        return paired_difference(a, b)
    except ValueError:
        return None


def _as_dict(change: Difference | None) -> dict[str, Any] | None:
    if change is None:
        return None
    return {"value": change.value, "se": change.se, "num_examples": change.num_examples}


def validations_table(view: PilotView) -> list[dict[str, Any]]:
    """Every validation of every arm, with its paired difference to ``before`` of that arm."""
    return [row for arm in arms_in_order(view) for row in _validation_rows(arm)]


def _validation_rows(arm: ArmView) -> Iterator[dict[str, Any]]:
    records = last_validations(arm)
    for (at, name), record in records.items():
        before = records.get((BEFORE, name))
        yield {
            "arm": arm.job.arm,
            "set": name,
            "primary": record.primary,
            "at": at,
            "step": record.step,
            "loss": record.loss,
            "num_examples": len(record.token_counts),
            "num_tokens": sum(record.token_counts),
            "difference": None if at == BEFORE else _as_dict(_difference(before, record)),
        }


def cost_table(view: PilotView) -> dict[str, Any]:
    """Optimizer steps and seconds of the whole pilot and of each arm, by kind of work.

    Work of attempts that were lost is in the seconds, not in the steps.
    """
    items: list[dict[str, Any]] = []
    for arm in arms_in_order(view):
        secs: dict[str, float] = {}
        for resource in arm.resources:
            if math.isfinite(resource.secs):
                secs[resource.kind] = secs.get(resource.kind, 0.0) + resource.secs
        items.append(
            {
                "arm": arm.job.arm,
                "num_steps": len(arm.steps),
                "num_cooldown_steps": len(arm.cooldown),
                "num_attempts": arm.num_attempts,
                "secs": sum(secs.values()),
                "secs_by_kind": dict(sorted(secs.items())),
            }
        )
    return {
        "num_steps": sum(i["num_steps"] + i["num_cooldown_steps"] for i in items),
        "secs": sum(i["secs"] for i in items),
        "arms": items,
    }


def checks_table(results: Mapping[str, CheckResult]) -> list[dict[str, Any]]:
    """Every check: its gate, what it costs, whether it measured, and its sentence or reason."""
    return [
        {
            "name": info.name,
            "gate": info.gate,
            "category": info.category,
            "cost": info.cost,
            "measured": results[info.name].measured,
            "sentence": results[info.name].sentence or results[info.name].reason,
            "limit": results[info.name].limit,
            "limit_source": info.limit_source,
            "numbers": results[info.name].numbers,
        }
        for info in all_checks()
    ]


def gates_table(gates: Sequence[GateResult]) -> list[dict[str, Any]]:
    """Every gate as one row."""
    return [
        {
            "name": gate.name,
            "need": gate.need,
            "status": gate.status,
            "judged": gate.judged,
            "sentence": gate.sentence,
            "limit": gate.limit,
            "limit_source": gate.limit_source,
            "waived": gate.waived or None,
            "checks": list(gate.checks),
        }
        for gate in gates
    ]


def plan_summary(view: PilotView) -> dict[str, Any]:
    """The plan in numbers: horizon, steps, segments, validations."""
    plan = view.plan
    return {
        "recipe": plan.recipe,
        "schedule_steps": plan.schedule.schedule_steps,
        "warmup_steps": plan.schedule.warmup_steps,
        "learning_rate": plan.schedule.learning_rate,
        "schedule": plan.schedule.kind,
        "start_step": plan.start_step,
        "stop_step": plan.stop_step,
        "pilot_steps": plan.pilot_steps,
        "num_peak_steps": plan.num_peak_steps,
        "cooldown_steps": plan.cooldown_steps,
        "whole_run": plan.whole_run,
        "share_of_full_run": plan.share_of_full_run,
        "rows_per_step": plan.rows_per_step,
        "validations": dict(plan.validations),
        "final_validation": plan.final_validation,
        "segments": [
            {"name": s.name, "first_step": s.first_step, "last_step": s.last_step}
            for s in plan.segments
        ],
    }
