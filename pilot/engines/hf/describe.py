"""A Trainer's whole run described as a pilot of which the baseline is the whole."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pilot.config import Config, validate
from pilot.engines import seeds
from pilot.engines.hf.arguments import tree_of
from pilot.engines.hf.workload import TrainerWorkload
from pilot.folder import BASELINE, ArmFolder, PilotFolder
from pilot.jsonl import write_json, write_text
from pilot.plan import RUN_END, Plan, baseline_job, make_plan
from pilot.recipe import RowFacts
from pilot.segments import make_segments
from pilot.survey import sizes, write_rows

WATCHED = "watched"  # the survey's key of a folder that no pilot wrote
_TIMED_ROWS = 16
_MAX_COLLATE_SECS = 30.0  # before the user's run begins
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


def describe(
    trainer: Any, name: str, max_steps: int, *, loader: Any, start_step: int = 0, counts: bool
) -> DescribedRun:
    """The run as a pilot of which the baseline is the whole; nothing of it is moved.

    Args:
        trainer: the Trainer, in ``on_train_begin``.
        name: of the run.
        max_steps: of the whole run.
        loader: its training loader.
        start_step: steps that were trained before anything was recorded.
        counts: whether the lengths of the rows are counted; one process is enough.
    """
    state = seeds.random_state()
    tree = tree_of(trainer, name, max_steps)
    tree["full_run"]["start_step"] = start_step
    if rate := _peak_rate(trainer):
        tree["optim"]["learning_rate"] = rate
    config = validate(tree)
    workload = TrainerWorkload(trainer, config, {}, loader=loader)
    facts, why_not = _facts(workload) if counts else ([], "")
    survey = {
        "num_train_rows": workload.num_rows,
        "source_names": sorted({fact.source for fact in facts}),
        "validation_rows": dict(workload.validation_rows) or {"validation": 0},
        "primary_validation": next(iter(workload.validation_rows), None),
        "objective": config.recipe["objective"],
        **sizes(trainer.accelerator.unwrap_model(trainer.model)),
        "checkpoint_bytes": None,
        "device": str(trainer.args.device),
        "timing": {},
        "failure": None,
        "label_audit": [],
        WATCHED: True,
    }
    plan = _whole_run(make_plan(config, survey, refuses=False), why_not)
    seeds.set_random_state(state)
    return DescribedRun(config=config, plan=plan, survey=survey, facts=facts)


def write_folder(run: DescribedRun, root: Path) -> None:
    """Configuration, survey, row table, plan and job, so that the folder reads as a pilot's."""
    folder = PilotFolder(root)
    arm: ArmFolder = folder.arm(BASELINE)
    arm.root.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(run.config.model_dump(mode="json", by_alias=True), sort_keys=False)
    write_text(folder.config, text)
    write_text(arm.config, text)
    write_rows(folder.rows, run.facts, list(run.survey["source_names"]))
    write_json(folder.survey, run.survey)
    write_json(folder.plan, run.plan)
    write_json(arm.job, baseline_job(run.plan, module_path=""))


def _peak_rate(trainer: Any) -> float | None:
    """The optimizer's own peak rate: the arguments' is unused where the user gave an optimizer."""
    group = trainer.optimizer.param_groups[0]
    rate = group.get("initial_lr", group.get("lr"))
    return float(rate) if isinstance(rate, (int, float)) and rate > 0 else None


def _facts(workload: TrainerWorkload) -> tuple[list[RowFacts], str]:
    """The facts of all rows, or none and why: the user's run does not wait for them."""
    if not workload.num_rows:
        return [], "lengths and order of the rows: the training data has no length"
    begun = time.perf_counter()
    try:
        rows = [workload.dataset[i] for i in range(min(_TIMED_ROWS, workload.num_rows))]
        for row in rows:
            workload.loader.collate_fn([row])
        secs = (time.perf_counter() - begun) / len(rows) * workload.num_rows
        if secs > _MAX_COLLATE_SECS:
            return [], f"lengths of the rows: to collate {workload.num_rows:,} takes {secs:.0f} s"
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
        not_measured=(_NOT_MEASURED, *([why_no_rows] if why_no_rows else [])),
        warnings=tuple(w for w in plan.warnings if "fresh optimizer state" not in w),
    )
