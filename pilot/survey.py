"""What has to be measured before a plan can be made: rows, parameters, step time, label audit.

It runs in a process of its own (``python -m pilot survey DIR``), so that the pilot's own process
never holds the model's memory. A recipe that fails here fails again in the baseline, where it
becomes an outcome with its step and rows; the survey only notes what it could therefore not
measure.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from pilot.arms.specs import arm_specs
from pilot.config import Config, validate
from pilot.engines import world
from pilot.engines.choose import open_workload
from pilot.engines.precision import pick_device
from pilot.engines.workload import Workload
from pilot.entry import run_guarded
from pilot.errors import ConfigError, Mistake, PilotError, UsageError
from pilot.folder import PilotFolder, read_json
from pilot.jsonl import write_json
from pilot.launchers.parallel import fitting, num_cores, parallelism, threads_of_each
from pilot.memory import memory_limit_bytes, peak_memory_bytes, process_age_secs
from pilot.own_rates import SURVEYED, OwnRates, write_own_rates
from pilot.recipe import RowFacts
from pilot.run_code import imported_files
from pilot.schedule import TRAINER, full_schedule, same_rate
from pilot.survey_model import measure_model
from pilot.view import load_rows

_MAX_DRAWS = 200_000  # of the user's own loader: two epochs, or more than a pilot needs


def run_survey(root: Path, *, rows_only: bool = False, data_only: bool = False) -> int:
    """Survey the recipe of the pilot in ``root``; returns the process's exit code.

    ``rows_only`` leaves the model out: for a survey that was killed while it measured the model.
    ``data_only`` only writes the digests of the data: for ``verify``.
    """
    folder = PilotFolder(root)
    work = _survey_data if data_only else lambda found: _survey(found, rows_only)
    with world.stoppable():
        code = run_guarded(lambda: work(folder), root / "survey_error.json")
        return world.end_process(code)


def _survey(folder: PilotFolder, rows_only: bool) -> int:
    config = _config(folder)
    device = pick_device(config.engine.device)
    num_runs = 1 + len(arm_specs(config))
    at_once, threads = parallelism(config.launcher, device.type, num_cores(), num_runs)
    if threads:
        torch.set_num_threads(threads)
    module_path = Path(read_json(folder.start)["module_path"])
    workload = _open(config, module_path)
    opened_secs = process_age_secs()  # every arm is a process that is started like this one
    if world.rank():
        return _followed(folder, workload, config, rows_only)
    facts, held_out = _write_data(folder, workload, config)
    model_facts = measure_model(workload, config, rows_only, _peer_failure(folder))
    if "start_secs" in (timing := model_facts["timing"]):
        timing["start_secs"] += opened_secs
    rates = model_facts.pop(SURVEYED)
    if rates is not None:
        require_planned(rates, config, len(facts))
        write_own_rates(folder.own_rates, rates)
    if not rows_only:
        at_once = _fitting(config, at_once, device)
    threads = threads_of_each(
        config.launcher, device.type, num_cores(), 1 if rows_only else at_once
    )
    survey = {
        **_data_facts(workload, facts, held_out),
        "objective": str(config.recipe.get("objective", "lm")),
        **model_facts,
        SURVEYED: rates.facts() if rates is not None else None,
        "label_audit": workload.audit(model_facts["vocab_size"], model_facts["max_positions"]),
        "num_threads": torch.get_num_threads(),
        "num_threads_per_arm": threads,
        "num_parallel": at_once,
        "trainer": dict(workload.run_facts()),
        "imported": imported_files(module_path),
        "max_validation_rows": config.pilot.validation_rows,
    }
    write_json(folder.survey, survey)
    has_lost = survey["failure"] and world.size() > 1 and not rows_only
    return world.EXIT_PEERS if has_lost else 0  # the others wait for what will not come


def _survey_data(folder: PilotFolder) -> int:
    config = _config(folder)
    module_path = Path(read_json(folder.start)["module_path"])
    workload = _open(config, module_path, is_trained=False)
    write_json(folder.survey, {"data": workload.digests()})
    return 0


def _config(folder: PilotFolder) -> Config:
    return validate(yaml.safe_load(folder.config.read_text(encoding="utf-8")))


def _write_data(
    folder: PilotFolder, workload: Workload, config: Config
) -> tuple[list[RowFacts], dict[str, Any] | None]:
    """Write row table, held-out rows and the loader's own order.

    Returns:
        The facts of all rows, and what the survey says of those that are held out.

    Raises:
        UsageError: there is nothing to train on.
    """
    facts = workload.facts()
    if not facts and workload.num_rows is not None:
        raise UsageError("the recipe has no training rows\n    remedy: check recipe.data")
    names = _source_names(facts)
    write_rows(folder.rows, facts, names)
    held_out = workload.hold_out(folder, load_rows(folder, {"source_names": names}))
    own = workload.own_order(_num_draws(config, len(facts)))
    if own is not None:
        np.save(folder.own_order, own, allow_pickle=False)
    return facts, held_out


def _data_facts(
    workload: Workload, facts: list[RowFacts], held_out: dict[str, Any] | None
) -> dict[str, Any]:
    """What ``survey.json`` says of training rows and validation sets."""
    return {
        "num_train_rows": workload.num_rows,
        "rows_come_again": workload.num_rows is not None or workload.goes_back,
        "source_names": _source_names(facts),
        "num_rows_measured": sum(fact.num_tokens >= 0 for fact in facts),
        "held_out": held_out,
        "data": workload.digests(),
        "order_is_fixed": workload.order_is_fixed(),
        "validation_rows": dict(workload.validation_rows),
        "primary_validation": next(iter(workload.validation_rows), None),
    }


def _source_names(facts: list[RowFacts]) -> list[str]:
    return sorted({fact.source for fact in facts})


def _fitting(config: Config, at_once: int, device: torch.device) -> int:
    """Runs at a time that memory allows; what the configuration says is taken as it is."""
    if config.launcher.max_parallel is not None:
        return at_once
    peak = peak_memory_bytes(device)
    if peak is not None and device.type == "cpu":  # another device's memory is not shared
        peak *= config.launcher.num_processes
    return fitting(at_once, peak, memory_limit_bytes(device))


def _followed(folder: PilotFolder, workload: Workload, config: Config, rows_only: bool) -> int:
    """The part of a process that is not the first one: only what needs all of them."""
    from pilot.engines.follower import follow_survey

    workload.own_order(_num_draws(config, workload.num_rows or 0))
    return 0 if rows_only else follow_survey(workload, config, _peer_failure(folder))


def _num_draws(config: Config, num_rows: int) -> int:
    done = (config.full_run.start_step or 0) * config.rows_per_step
    return done + max(2 * num_rows, _MAX_DRAWS)


def _peer_failure(folder: PilotFolder) -> Path:
    """Where another process than the first one says what the user's code raised in it."""
    return folder.root / "survey_failure.json"


def _open(config: Config, module_path: Path, *, is_trained: bool = True) -> Workload:
    """Build the recipe; what is wrong with it is the user's to repair: no plan is possible."""
    try:
        workload = open_workload(config, module_path)
        if is_trained:
            workload.require_contract()
        return workload
    except PilotError:
        raise
    except (Exception, SystemExit) as error:
        import traceback

        tail = "".join(traceback.format_exc().splitlines(keepends=True)[-6:])
        raise UsageError(
            f"the recipe {module_path.name} cannot be built: "
            f"{type(error).__name__}: {error}\n{tail}"
            "    remedy: `build` must return data before anything can be planned"
        ) from error


def write_rows(path: Path, facts: list[RowFacts], names: list[str]) -> None:
    """Write the row table; ``names`` are the sources in the order of their codes."""
    codes = {name: code for code, name in enumerate(names)}
    temporary = path.with_name(f".{path.name}")
    with temporary.open("wb") as file:
        np.savez_compressed(
            file,
            num_tokens=np.array([f.num_tokens for f in facts], dtype=np.int64),
            num_supervised_tokens=np.array([f.num_supervised_tokens for f in facts], np.int64),
            source=np.array([codes[f.source] for f in facts], dtype=np.int64),
        )
    os.replace(temporary, path)


def require_planned(rates: OwnRates, config: Config, num_rows: int) -> None:
    """The rates that the user's scheduler plans are those of ``full_run``, where it has a formula.

    Raises:
        ConfigError: with the first step that differs.
    """
    schedule = full_schedule(config, num_rows)
    if schedule.kind == TRAINER:
        return
    remedy = "full_run.schedule=trainer takes the scheduler's own rates"
    if rates.unknown:
        line = f"{schedule.kind}, and {rates.unknown}"
        rule = "the full run's rates must be known"
        raise ConfigError([Mistake(key="full_run.schedule", value=line, rule=rule, remedy=remedy)])
    for step, rate in enumerate(rates.first_group[: schedule.schedule_steps], rates.first_step):
        planned = schedule.learning_rate_at(step)
        if not same_rate(rate, planned, schedule.learning_rate):
            line = f"the rate of step {step} is {planned:.9g}, the scheduler's is {rate:.9g}"
            rule = "must describe the rates of the run's own optimizer and scheduler"
            raise ConfigError(
                [Mistake(key="full_run.schedule", value=line, rule=rule, remedy=remedy)]
            )
