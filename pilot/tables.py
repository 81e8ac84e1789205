"""The tables of a judged pilot: arms, validations, cost, checks. Plain values for JSON.

Pure functions of the folder's view. Seconds come from ``resources.jsonl``, all else from the
deterministic records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pilot.arms.tables import arms_in_order, difference_dict, saved_steps
from pilot.checks.common import last_validations
from pilot.checks.registry import CheckResult, all_checks
from pilot.plan import BEFORE
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
            "difference": None if at == BEFORE else difference_dict(before, record),
        }


def cost_table(view: PilotView) -> dict[str, Any]:
    """Optimizer steps and seconds of the whole pilot and of each arm, by kind of work.

    ``num_steps`` counts what was trained: an arm that starts from a state of the baseline, ends
    early or is identical costs less than a whole one (``saved``). ``ratio`` is all of it over the
    baseline's own steps without its cool-down. Work of attempts that were lost is in the seconds,
    not in the steps.
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
                "num_steps": arm.num_own_steps,
                "num_attempts": arm.num_attempts,
                "secs": sum(secs.values()),
                "secs_by_kind": dict(sorted(secs.items())),
            }
        )
    total = sum(item["num_steps"] for item in items)
    return {
        "num_steps": total,
        "baseline_steps": view.plan.pilot_steps,
        "ratio": total / view.plan.pilot_steps,
        "saved": saved_steps(view),
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
