"""Gate ``schedule``: every step used the planned learning rate."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from pilot.arms.specs import RATE
from pilot.checks.common import num, plural
from pilot.checks.registry import FAIL, CheckResult, not_measured, register
from pilot.checks.schedule_pattern import Pair, explain
from pilot.config import find_mistakes
from pilot.folder import BASELINE
from pilot.gates import Gates
from pilot.records import Finding, StepRecord
from pilot.schedule import (
    RATE_TOLERANCE,
    TRAINER,
    RateTable,
    Schedule,
    full_schedule,
    same_rate,
    scaled,
    table_schedule,
)
from pilot.segments import cooldown_rate
from pilot.view import ArmView, PilotView

NAME = "schedule"
SOURCE = "a float32 rate is rounded by at most 2**-24 = 6e-8; 10 of 144 public fault reports"
LIMIT = f"the planned learning rate at every step, to {RATE_TOLERANCE:g} of it"
_FORMULAS = ("full_run", "batch")  # sections that change a schedule


@register(
    name=NAME,
    gate="schedule",
    category="implementation",
    limit_source=SOURCE,
    cost="none: the probe reads the rate of every step",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Fail when a step used another rate than the arm's schedule plans for it.

    Judges the steps, the cool-down branch and the extension. Each step that a loss scaler skipped
    may hold the schedule back by one step from there on, or not. A rate that is NaN or infinite is
    not the planned one; steps without a rate, or without a planned one, are left out. Nothing was
    measured when no step is left, or when the schedule could not be known before the run.
    """
    plan, why = _plan_of(view, arm)
    if plan is None:
        return not_measured(why, LIMIT)
    wrong, judged = _compare(arm, plan)
    if not judged:
        return not_measured("no step with a recorded and a planned learning rate", LIMIT)
    found = (_finding(view, arm, plan, wrong, judged),) if wrong else ()
    fine = f"the learning rate is the planned one at {plural(len(judged), 'step')}"
    return CheckResult(
        measured=True,
        findings=found,
        sentence=found[0].sentence if found else fine,
        limit=LIMIT,
        numbers={"num_steps": len(judged), "num_other_steps": len(wrong)},
    )


def _plan_of(view: PilotView, arm: ArmView) -> tuple[Schedule | None, str]:
    """The schedule that ``arm`` should follow, or why it is not known."""
    plan = view.plan.schedule
    if plan.unknown:
        return None, plan.unknown
    evidence = None if arm.job.arm == BASELINE else arm.experiment(NAME)
    if evidence is not None:
        return _measured(evidence.values, plan)
    if arm.job.arm == BASELINE or _same_schedule(arm):
        return plan, ""
    return _changed(view, arm)


def _measured(facts: Mapping[str, Any], plan: Schedule) -> tuple[Schedule | None, str]:
    """What the arm's own scheduler plans; before a fork the baseline's."""
    if facts.get("unknown"):
        return None, str(facts["unknown"])
    first = int(facts["first_step"])
    before = [plan.learning_rate_at(s) if plan.knows(s) else math.nan for s in range(1, first)]
    table = RateTable(rates=(*before, *facts["rates"]), base_rate=plan.learning_rate)
    return table_schedule(plan.learning_rate, plan.schedule_steps, table), ""


def _same_schedule(arm: ArmView) -> bool:
    keys = (arm.job.variable, *arm.job.follows)
    return not any(key == RATE or key.partition(".")[0] in _FORMULAS for key in keys)


def _changed(view: PilotView, arm: ArmView) -> tuple[Schedule | None, str]:
    """The schedule of an arm's own configuration."""
    job, plan = arm.job, view.plan.schedule
    tree = copy.deepcopy(dict(view.config))
    for key, text in {job.variable: job.value, **job.follows}.items():
        *parents, leaf = key.split(".")
        node: Any = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = yaml.safe_load(text)
    _, config = find_mistakes(tree)
    if config is None:
        return None, "the arm's configuration cannot be read"
    own = full_schedule(config, int(view.survey.get("num_train_rows") or 0))
    if own.kind != TRAINER:
        return own, ""
    if job.variable != RATE or job.follows:
        return None, "the arm's own scheduler was not looked at before it ran"
    scale = own.learning_rate / plan.learning_rate
    table = RateTable(rates=scaled(plan.rates, scale), base_rate=own.learning_rate)
    return table_schedule(own.learning_rate, own.schedule_steps, table), ""


def _compare(arm: ArmView, plan: Schedule) -> tuple[list[StepRecord], list[StepRecord]]:
    """The steps with another rate than planned, and all that could be judged."""
    wrong, judged, lags = [], [], {0}
    first, stop = arm.job.start_step + 1, arm.job.stop_step
    for record in (*arm.steps, *arm.extension):
        planned = {
            lag: plan.learning_rate_at(record.step - lag)
            for lag in lags
            if record.step - lag >= first and plan.knows(record.step - lag)
        }
        if planned and _is_number(record.learning_rate):
            judged.append(record)
            used = record.learning_rate
            fits = {lag for lag, rate in planned.items() if same_rate(used, rate, plan.peak_rate)}
            if fits:
                lags = fits
            else:
                wrong.append(record)
        if record.step_skipped:
            lags = {*lags, *(lag + 1 for lag in lags)}
    for record in arm.cooldown:
        index = record.step - stop
        if not (plan.knows(stop) and _is_number(record.learning_rate) and index >= 1):
            continue
        judged.append(record)
        rate = cooldown_rate(plan, stop, arm.job.cooldown_steps, index)
        if not same_rate(record.learning_rate, rate, plan.peak_rate):
            wrong.append(record)
    return wrong, judged


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _finding(
    view: PilotView,
    arm: ArmView,
    plan: Schedule,
    wrong: Sequence[StepRecord],
    judged: Sequence[StepRecord],
) -> Finding:
    first = wrong[0]
    planned = _planned(arm, plan, first.step)
    pattern = _pattern(view, arm, plan)
    text = (
        f"the learning rate at step {first.step} is {_rate(first.learning_rate)}, the planned one "
        f"is {_rate(planned)}; {len(wrong)} of {plural(len(judged), 'step')} differ"
    )
    return Finding(
        check=NAME,
        severity=FAIL,
        category="implementation",
        sentence=f"{text}: {pattern}" if pattern else text,
        step=first.step,
        numbers={
            "learning_rate": first.learning_rate,
            "planned_learning_rate": planned,
            "num_other_steps": len(wrong),
            "num_steps": len(judged),
        },
        limit=LIMIT,
        limit_source=SOURCE,
        obj="learning rate",
        todo="step the scheduler once per optimizer step (a Trainer does it by itself), and look "
        "for callbacks that set the rate",
    )


def _planned(arm: ArmView, plan: Schedule, step: int) -> float:
    stop = arm.job.stop_step
    in_branch = step > stop and not any(record.step == step for record in arm.extension)
    if in_branch:
        return cooldown_rate(plan, stop, arm.job.cooldown_steps, step - stop)
    return plan.learning_rate_at(step)


def _rate(value: float) -> str:
    return num(value) if math.isfinite(value) else f"not a number ({value})"


def _pattern(view: PilotView, arm: ArmView, plan: Schedule) -> str:
    """The mistake that explains the rates; a run with skipped steps is not explained."""
    pairs: list[Pair] = [
        (record.step, float(record.learning_rate))
        for record in arm.steps
        if _is_number(record.learning_rate)
        and math.isfinite(record.learning_rate)
        and plan.knows(record.step)
    ]
    if any(record.step_skipped for record in arm.steps):
        return ""
    batch = view.config.get("batch") or {}
    usual, size = int(batch.get("grad_accum_steps") or 1), int(batch.get("micro_batch_size") or 1)
    micro = {r.step: -(-len(r.row_ids) // size) if r.row_ids else usual for r in arm.steps}
    world = int(view.fingerprint.get("world_size") or 1)
    return explain(pairs, plan, arm.job.start_step + 1, micro, world)
