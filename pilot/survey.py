"""What has to be measured before a plan can be made: rows, parameters, step time, label audit.

It runs in a process of its own (``python -m pilot survey DIR``), so that the pilot's own process
never holds the model's memory. A recipe that fails here fails again in the baseline, where it
becomes an outcome with its step and rows; the survey only notes what it could therefore not
measure.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from pilot.arms.specs import arm_specs
from pilot.config import Config, validate
from pilot.engines import world
from pilot.engines.base import Engine, Observer, Program, StepRequest, Workload
from pilot.engines.choose import open_workload
from pilot.engines.leader import lead
from pilot.engines.precision import pick_device
from pilot.entry import run_guarded
from pilot.errors import PilotError, RecipeFailure, UsageError
from pilot.folder import PilotFolder, read_json
from pilot.jsonl import from_json, write_json
from pilot.launchers.parallel import fitting, num_cores, parallelism, threads_of_each
from pilot.memory import memory_limit_bytes, peak_memory_bytes
from pilot.recipe import RowFacts
from pilot.records import Outcome

_TIMED_STEPS = 3
_MAX_DRAWS = 200_000  # of the user's own loader: two epochs, or more than a pilot needs


def run_survey(root: Path, *, rows_only: bool = False) -> int:
    """Survey the recipe of the pilot in ``root``; returns the process's exit code.

    ``rows_only`` leaves the model out: for a survey that was killed while it measured the model.
    """
    folder = PilotFolder(root)
    with world.stoppable():
        code = run_guarded(lambda: _survey(folder, rows_only), root / "survey_error.json")
        return world.end_process(code)


def _survey(folder: PilotFolder, rows_only: bool) -> int:
    config = validate(yaml.safe_load(folder.config.read_text(encoding="utf-8")))
    device = pick_device(config.engine.device)
    num_runs = 1 + len(arm_specs(config))
    at_once, threads = parallelism(config.launcher, device.type, num_cores(), num_runs)
    if threads:
        torch.set_num_threads(threads)
    module_path = Path(read_json(folder.start)["module_path"])
    workload = _open(config, module_path)
    if world.rank():
        return _followed(folder, workload, config, rows_only)
    facts = workload.facts()
    if not facts:
        raise UsageError("the recipe has no training rows\n    remedy: check recipe.data")
    names = sorted({fact.source for fact in facts})
    write_rows(folder.rows, facts, names)
    own = workload.own_order(_num_draws(len(facts)))
    if own is not None:
        np.save(folder.own_order, own, allow_pickle=False)
    model_facts = _measure_model(workload, config, rows_only, _peer_failure(folder))
    if not rows_only:
        at_once = _fitting(config, at_once, device)
    threads = threads_of_each(
        config.launcher, device.type, num_cores(), 1 if rows_only else at_once
    )
    survey = {
        "num_train_rows": len(facts),
        "source_names": names,
        "validation_rows": dict(workload.validation_rows),
        "primary_validation": next(iter(workload.validation_rows), None),
        "objective": str(config.recipe.get("objective", "lm")),
        **model_facts,
        "label_audit": workload.audit(model_facts["vocab_size"], model_facts["max_positions"]),
        "num_threads": torch.get_num_threads(),
        "num_threads_per_arm": threads,
        "num_parallel": at_once,
    }
    write_json(folder.survey, survey)
    has_lost = survey["failure"] and world.size() > 1 and not rows_only
    return world.EXIT_PEERS if has_lost else 0  # the others wait for what will not come


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

    workload.own_order(_num_draws(workload.num_rows))
    return 0 if rows_only else follow_survey(workload, config, _peer_failure(folder))


def _num_draws(num_rows: int) -> int:
    return max(2 * num_rows, _MAX_DRAWS)


def _peer_failure(folder: PilotFolder) -> Path:
    """Where another process than the first one says what the user's code raised in it."""
    return folder.root / "survey_failure.json"


def _open(config: Config, module_path: Path) -> Workload:
    """Build the recipe; what is wrong with it is the user's to repair: no plan is possible."""
    try:
        workload = open_workload(config, module_path)
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


def _measure_model(
    workload: Workload, config: Config, rows_only: bool, peer_failure: Path
) -> dict[str, Any]:
    """Parameters, bytes and seconds; what the recipe's failure hides is said in ``failure``."""
    found: dict[str, Any] = {
        "num_parameters": None,
        "num_trainable_parameters": None,
        "parameter_bytes": None,
        "checkpoint_bytes": None,
        "vocab_size": None,
        "max_positions": None,
        "device": str(pick_device(config.engine.device)),
        "timing": {},
        "failure": None,
    }
    if rows_only:
        return {**found, "failure": "the survey was killed while it measured the model"}
    started = time.perf_counter()
    size = _TIMED_STEPS * config.rows_per_step
    order = np.random.default_rng(0).integers(workload.num_rows, size=size)
    try:
        engine = lead(workload.make_engine(order=order, first_step=1, observer=Observer()))
        engine.run(_measured(engine, found, started))
    except RecipeFailure as failure:
        found["failure"] = f"the recipe failed in {failure.where}: {failure.error}"[:500]
        if world.is_lost_peer(failure.error):
            found["failure"] = _said_by(peer_failure)
    except (world.PeerLost, world.Stopped) as lost:
        found["failure"] = _said_by(peer_failure, lost)
    return found


def _said_by(peer_failure: Path, lost: BaseException | None = None) -> str:
    """What another process said before it ended; one that was killed says nothing."""
    if not peer_failure.is_file():
        if isinstance(lost, world.Stopped):
            raise lost
        world.wait_for_the_agent()
        return "another process of the survey ended"
    outcome = from_json(Outcome, read_json(peer_failure))
    return f"the recipe failed in {outcome.where}, {outcome.message}"[:500]


def _measured(engine: Engine, found: dict[str, Any], started: float) -> Program:
    """Sizes, then a few steps at the rate 0 with their seconds, then the bytes of a state."""
    start_secs = time.perf_counter() - started
    found.update(sizes(engine.model))
    found["built_dtypes"] = list(engine.built_dtypes)
    found["capabilities"] = dataclasses.asdict(engine.capabilities)
    steps = []
    for _ in range(_TIMED_STEPS):
        begun = time.perf_counter()
        yield StepRequest(learning_rate=0.0, forced=True)
        engine.flush()
        steps.append(time.perf_counter() - begun)
    found["timing"] = {
        "start_secs": start_secs,
        "step_secs": float(np.median(steps[1:])),
        "validation_secs": engine.validation_secs(),
    }
    found["checkpoint_bytes"] = tensor_bytes(engine.snapshot())
    return Outcome(status=Outcome.COMPLETED, last_step=engine.step)


def sizes(model: torch.nn.Module) -> dict[str, Any]:
    """Parameters, bytes, vocabulary and positions of a model, as far as it says."""
    params = list(model.parameters())
    embed = getattr(model, "get_input_embeddings", lambda: None)()
    return {
        "num_parameters": sum(p.numel() for p in params),
        "num_trainable_parameters": sum(p.numel() for p in params if p.requires_grad),
        "parameter_bytes": sum(p.numel() * p.element_size() for p in params),
        "vocab_size": getattr(embed, "num_embeddings", None),
        "max_positions": getattr(getattr(model, "config", None), "max_position_embeddings", None),
    }


def tensor_bytes(value: object) -> int:
    """Bytes of all tensors inside nested containers."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Mapping):
        return sum(tensor_bytes(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(tensor_bytes(item) for item in value)
    return 0
