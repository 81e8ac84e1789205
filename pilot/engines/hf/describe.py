"""A Trainer's whole run described as a pilot of which the baseline is the whole."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pilot.config import Config, validate
from pilot.engines import seeds
from pilot.engines.hf.arguments import tree_of
from pilot.engines.hf.rates import measure_rates, planned_rates
from pilot.engines.hf.rows import inner_batch_sampler
from pilot.engines.hf.sharded import HIDES, of_trainer
from pilot.engines.hf.workload import TrainerWorkload
from pilot.own_rates import SURVEYED
from pilot.plan import RUN_END, Plan, make_plan
from pilot.recipe import RowFacts
from pilot.schedule import TRAINER, RateTable, Schedule, full_schedule, same_rate
from pilot.segments import make_segments
from pilot.survey_model import sizes

WATCHED = "watched"  # the survey's key of a folder that no pilot wrote
_NOT_MEASURED = (
    "written by pilot.PilotCallback inside the run: no arms, no cool-down, no determinism, no "
    "longest sample before step 1, no experiments"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DescribedRun:
    """What is known of the run before its first step."""

    config: Config
    plan: Plan
    survey: Mapping[str, Any]
    facts: list[RowFacts]

    def source_of(self, row: int) -> str:
        """The source of a row, by its id."""
        return self.facts[row].source if 0 <= row < len(self.facts) else "train"


def describe(
    trainer: Any,
    name: str,
    max_steps: int,
    *,
    loader: Any,
    counts: bool,
    start_step: int = 0,
    planned: Schedule | None = None,
) -> DescribedRun:
    """The run as a pilot of which the baseline is the whole; nothing of it is moved.

    Its rates are those that the Trainer's own scheduler plans; where they are not one of pilot's
    formulas, its schedule is a table of them.

    Args:
        trainer: the Trainer, in ``on_train_begin``.
        name: of the run.
        max_steps: of the whole run.
        loader: its training loader.
        counts: whether the lengths of the rows are counted; one process is enough.
        start_step: steps that were trained before anything was recorded.
        planned: what an earlier attempt of the same run planned; it stays the plan.
    """
    state = seeds.random_state()
    tree = tree_of(trainer, name, max_steps)
    tree["full_run"]["start_step"] = start_step
    if rate := _peak_rate(trainer):
        tree["optim"]["learning_rate"] = rate
    named = float(tree["optim"]["learning_rate"])
    own, table = _own_rates(trainer, max_steps, named, planned)
    if not _has_formula(validate(tree), table):
        tree["full_run"]["schedule"] = TRAINER
    config = validate(tree)
    workload = TrainerWorkload(trainer, config, {}, loader=loader)
    facts, why_not = _facts(workload) if counts else ([], "")
    survey = {**_survey(workload, facts), SURVEYED: own, WATCHED: True}
    plan = _whole_run(make_plan(config, survey, own_rates=table, refuses=False), why_not)
    seeds.set_random_state(state)
    return DescribedRun(config=config, plan=plan, survey=survey, facts=facts)


def _survey(workload: TrainerWorkload, facts: list[RowFacts]) -> dict[str, Any]:
    """What a survey would say of data and model, as far as it is known without one."""
    trainer = workload.trainer
    hidden = of_trainer(trainer)
    return {
        "num_train_rows": workload.num_rows,
        "rows_come_again": workload.goes_back,
        "source_names": sorted({fact.source for fact in facts}),
        "validation_rows": dict(workload.validation_rows) or {"validation": 0},
        "primary_validation": next(iter(workload.validation_rows), None),
        "objective": workload.config.recipe["objective"],
        **sizes(trainer.accelerator.unwrap_model(trainer.model)),
        "checkpoint_bytes": None,
        "device": str(trainer.args.device),
        "timing": {},
        "failure": None,
        "label_audit": [],
        "capabilities": {"reports_row_ids": inner_batch_sampler(workload.loader) is not None},
        "not_measured": [f"under {hidden}: {line}" for line in HIDES[hidden]] if hidden else [],
    }


def _own_rates(
    trainer: Any, max_steps: int, named: float, planned: Schedule | None
) -> tuple[dict[str, Any], RateTable]:
    """Facts of the planned rates, and their table from step 1 on.

    A resumed run's scheduler only tells what is to come. What came before is the earlier attempt's
    plan, or what a scheduler that the Trainer makes by itself would have begun with.
    """
    optimizer = trainer.optimizer
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    done = int(trainer.state.global_step)
    own = measure_rates(trainer, optimizer, done, max_steps)
    table = own.table(named)
    if done and not own.unknown:
        before: Sequence[float] = ()
        if planned is not None and planned.knows(1):
            before = [
                planned.learning_rate_at(s) if planned.knows(s) else math.nan
                for s in range(1, planned.last_planned + 1)
            ]
        elif getattr(trainer, "_created_lr_scheduler", False):
            before = planned_rates(_unbegun(trainer), max_steps)
        table = dataclasses.replace(table, rates=(*before, *table.rates[len(before) :]))
    if not table.peak > 0.0:  # an optimizer that finds its own step: nothing to draw a plan from
        unknown = own.unknown or "the planned learning rate is 0 at every step"
        table = RateTable(rates=(named,) * (max_steps + 1), base_rate=named, unknown=unknown)
    return {**own.facts(), "unknown": table.unknown}, table


def _unbegun(trainer: Any) -> Any:
    """The Trainer as it was before its scheduler was made."""
    twin = copy.copy(trainer)
    twin.lr_scheduler = None
    return twin


def _has_formula(config: Config, table: RateTable) -> bool:
    """Whether the table is what the configuration's formula gives, at every known step."""
    schedule = full_schedule(config, 1, table)
    if schedule.kind == TRAINER or table.unknown:
        return False
    return all(
        math.isnan(rate) or same_rate(rate, schedule.learning_rate_at(step), schedule.learning_rate)
        for step, rate in enumerate(table.rates[: schedule.schedule_steps], start=1)
    )


def _peak_rate(trainer: Any) -> float | None:
    """The optimizer's own peak rate: the arguments' is unused where the user gave an optimizer."""
    group = trainer.optimizer.param_groups[0]
    rate = group.get("initial_lr", group.get("lr"))
    return float(rate) if isinstance(rate, (int, float)) and rate > 0 else None


def _facts(workload: TrainerWorkload) -> tuple[list[RowFacts], str]:
    """The facts of all rows, or none and why: the user's run does not wait for them."""
    if not workload.num_rows:
        return [], "lengths and order of the rows: the training data has no length"
    try:
        return workload.facts(), ""
    except Exception as error:  # a collator that wants several rows, rows that are made in batches
        return [], f"lengths of the rows: {type(error).__name__} for a row by itself"


def _whole_run(plan: Plan, why_no_rows: str) -> Plan:
    """The plan of a run that is trained to its end: no branch, nothing beyond."""
    validations: Mapping[str, int] = {
        at: step for at, step in plan.validations.items() if step < plan.stop_step
    }
    return dataclasses.replace(
        plan,
        cooldown_steps=0,
        extension_steps=0,
        segments=make_segments(plan.schedule, plan.start_step, plan.stop_step, 0),
        validations={**validations, RUN_END: plan.stop_step},
        final_validation=RUN_END,
        checkpoints={},
        not_measured=(_NOT_MEASURED, *([why_no_rows] if why_no_rows else []), *plan.not_measured),
        warnings=tuple(w for w in plan.warnings if "fresh optimizer state" not in w),
    )
