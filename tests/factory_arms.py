"""One synthetic arm: steps, validations, evidence, resources and outcome from a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from pilot.folder import BASELINE, Job
from pilot.plan import Plan
from pilot.records import Evidence, Outcome, Resource, StepRecord, ValidationRecord
from pilot.segments import cooldown_rate
from pilot.view import ArmView, RowTable
from tests.factory_parts import (
    OTHER,
    PRIMARY,
    make_evidence,
    make_movement,
    make_step,
    make_validation,
)


def make_arm(
    plan: Plan,
    order: Sequence[int],
    *,
    name: str = BASELINE,
    variable: str = "",
    value: str = "",
    learning_rate: float | None = None,
    before: float = 3.0,
    final: float = 2.0,
    other_final: float | None = None,
    last_step: int | None = None,
    outcome: Outcome | None | str = "auto",
    edit: Callable[[StepRecord], StepRecord] = lambda record: record,
    num_examples: int = 64,
    memory_limit_bytes: int | None = None,
) -> ArmView:
    """One arm that trained to ``last_step`` (default: its planned end; earlier: no cool-down).

    ``before`` and ``final`` are validation losses (between them a straight line), ``other_final``
    that of the second set. ``outcome`` "auto": completed, or stopped when ``last_step`` is early;
    None: lost. ``edit`` changes every step record. The baseline carries the evidence.
    """
    rate = plan.schedule.learning_rate if learning_rate is None else learning_rate
    stop = plan.stop_step if last_step is None else last_step
    complete = stop >= plan.stop_step
    steps = [edit(_step(plan, order, s, rate)) for s in range(plan.start_step + 1, stop + 1)]
    last = plan.stop_step + plan.cooldown_steps if complete else stop
    cooldown = [edit(_step(plan, order, s, rate)) for s in range(plan.stop_step + 1, last + 1)]
    return ArmView(
        job=_job(plan, name, variable, value),
        steps=tuple(steps),
        cooldown=tuple(cooldown),
        validations=_validations(plan, last, before, final, other_final, num_examples, name),
        evidence=_evidence(plan) if name == BASELINE and complete else (),
        resources=tuple(_resources(steps, cooldown, memory_limit_bytes)),
        outcome=_outcome(outcome, complete, stop),
        num_attempts=1,
        num_own_steps=len(steps) + len(cooldown),
    )


def _outcome(given: Outcome | None | str, complete: bool, stop: int) -> Outcome | None:
    if not isinstance(given, str):
        return given
    return Outcome(status=Outcome.COMPLETED if complete else Outcome.STOPPED, last_step=stop)


def _job(plan: Plan, name: str, variable: str, value: str) -> Job:
    return Job(
        arm=name,
        role=BASELINE if name == BASELINE else "arm",
        variable=variable,
        value=value,
        start_step=plan.start_step,
        stop_step=plan.stop_step,
        cooldown_steps=plan.cooldown_steps,
        validations=plan.validations,
        checkpoints=plan.checkpoints if name == BASELINE else {},
        module_path="recipes/synthetic.py",
        title=name.replace("_", " ").replace("x1 3", "x1/3").replace("x1 10", "x1/10"),
        order=0 if name == BASELINE else 1,
    )


def _step(plan: Plan, order: Sequence[int], step: int, rate: float) -> StepRecord:
    done, size = step - plan.start_step - 1, plan.rows_per_step
    rows = tuple(int(row) for row in order[done * size : (done + 1) * size])
    stop = plan.stop_step
    if step <= stop:
        used = plan.schedule.factor_at(step) * rate
    else:
        share = rate / plan.schedule.learning_rate
        used = share * cooldown_rate(plan.schedule, stop, plan.cooldown_steps, step - stop)
    wave = 0.05 * math.sin(1.7 * step)
    return make_step(
        step,
        learning_rate=used,
        loss=3.0 - 1.0 * done / (stop - plan.start_step) + wave,
        grad_norm=0.8 + 0.1 * math.cos(step),
        clip_coef=1.0 if step % 4 else 0.9,
        row_ids=rows,
        source_counts={"code": len(rows)},
    )


def _validations(
    plan: Plan,
    last: int,
    before: float,
    final: float,
    other_final: float | None,
    num_examples: int,
    arm: str,
) -> tuple[ValidationRecord, ...]:
    records = []
    total = plan.validations[plan.final_validation] - plan.start_step
    for at, step in plan.validations.items():
        if step > last:
            continue
        share = (step - plan.start_step) / total
        for name, end in ((PRIMARY, final), (OTHER, final if other_final is None else other_final)):
            loss = before if share == 0 else before + share * (end - before)
            records.append(
                make_validation(
                    at,
                    step,
                    end if share == 1.0 else loss,
                    name=name,
                    primary=name == PRIMARY,
                    num_examples=num_examples,
                    seed=0 if share == 0 else sum(arm.encode()),
                )
            )
    return tuple(records)


def _evidence(plan: Plan) -> tuple[Evidence, ...]:
    return (
        make_evidence(
            "determinism",
            plan.start_step + 1,
            loss_a=3.0,
            loss_b=3.0,
            grad_norm_a=0.8,
            grad_norm_b=0.8,
            max_param_diff=0.0,
            relative_spread=0.0,
        ),
        make_evidence(
            "longest_sample",
            plan.start_step + 1,
            row_ids=[0, 1, 2, 3],
            longest_tokens=200,
            loss=3.1,
        ),
        make_movement(plan.stop_step),
    )


def _resources(
    steps: Sequence[StepRecord], cooldown: Sequence[StepRecord], limit: int | None
) -> list[Resource]:
    resources = [Resource(kind="start", step=0, secs=1.0)]
    resources.extend(
        Resource(kind="step", step=r.step, secs=0.05, tokens_per_sec=16_000.0)
        for r in (*steps, *cooldown)
    )
    resources.append(Resource(kind="validation", step=0, secs=0.4))
    resources.append(Resource(kind="checkpoint", step=0, secs=0.1, num_bytes=12_000_000))
    if limit is not None:
        for kind in ("memory_longest", "memory_validation", "memory_saving"):
            resources.append(
                Resource(kind=kind, step=1, secs=0.1, peak_memory_bytes=limit // 2, num_bytes=limit)
            )
    return resources


def make_order(plan: Plan, rows: RowTable) -> list[int]:
    """Row ids in drawing order: longest rows and a rare row first, then a random permutation."""
    rng = np.random.default_rng(3)
    first = [0, 1, 2, 3, len(rows.num_tokens) - 1]
    rest = [int(r) for r in rng.permutation(len(rows.num_tokens)) if r not in first]
    order = first + rest
    while len(order) < plan.num_rows_needed:
        order = order + rest
    return order[: plan.num_rows_needed]
