"""A Trainer's whole run described as a pilot of which the baseline is the whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pilot.config import Config, validate
from pilot.engines.hf.arguments import tree_of
from pilot.engines.hf.rows import inner_batch_sampler
from pilot.engines.hf.sharded import HIDES, of_trainer
from pilot.engines.hf.workload import TrainerWorkload
from pilot.folder import BASELINE, ArmFolder, PilotFolder
from pilot.jsonl import write_json, write_text
from pilot.plan import RUN_END, Plan, baseline_job, make_plan
from pilot.recipe import RowFacts
from pilot.segments import make_segments
from pilot.survey import sizes, write_rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class DescribedRun:
    """What is known of the run before its first step."""

    config: Config
    plan: Plan
    survey: Mapping[str, Any]
    facts: list[RowFacts]


def describe(trainer: Any, name: str, max_steps: int) -> DescribedRun:
    """The run as a pilot of which the baseline is the whole."""
    config = validate(tree_of(trainer, name, max_steps))
    workload, hidden = TrainerWorkload(trainer, config, {}), of_trainer(trainer)
    facts = workload.facts() if workload.num_rows else []
    model = trainer.accelerator.unwrap_model(trainer.model)
    survey = {
        "num_train_rows": len(facts),
        "source_names": sorted({fact.source for fact in facts}),
        "validation_rows": dict(workload.validation_rows) or {"validation": 0},
        "primary_validation": next(iter(workload.validation_rows), None),
        "objective": config.recipe["objective"],
        **sizes(model),
        "checkpoint_bytes": None,
        "device": str(trainer.args.device),
        "timing": {},
        "failure": None,
        "label_audit": [],
        "capabilities": {"reports_row_ids": inner_batch_sampler(workload.loader) is not None},
        "not_measured": [f"under {hidden}: {line}" for line in HIDES[hidden]] if hidden else [],
    }
    plan = _whole_run(make_plan(config, survey))
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


def _whole_run(plan: Plan) -> Plan:
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
    )
