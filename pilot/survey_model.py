"""What is measured of the model before a plan is made: parameters, bytes, seconds of a step."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pilot.config import Config
from pilot.engines import world
from pilot.engines.base import Engine, Observer, Program, StepRequest
from pilot.engines.contract import as_mistake
from pilot.engines.guard import ContractError, guard
from pilot.engines.leader import lead
from pilot.engines.precision import pick_device
from pilot.engines.workload import Workload
from pilot.errors import ConfigError, Mistake, RecipeFailure
from pilot.folder import read_json
from pilot.jsonl import from_json
from pilot.own_rates import SURVEYED
from pilot.records import Outcome

_TIMED_STEPS = 3


def measure_model(
    workload: Workload, config: Config, rows_only: bool, peer_failure: Path
) -> dict[str, Any]:
    """Parameters, bytes and seconds; what the recipe's failure hides is said in ``failure``.

    Args:
        workload: the user's; its engine is built here.
        config: the validated configuration.
        rows_only: the model is left out: an earlier survey was killed while it measured it.
        peer_failure: where another process says what the user's code raised in it.

    Raises:
        ConfigError: the recipe's contract is not kept, or the step to begin at is not known.
    """
    found = _nothing_yet(config)
    if rows_only:
        _require_known_step(config)
        return {**found, "failure": "the survey was killed while it measured the model"}
    started = time.perf_counter()
    order = _any_rows(workload.num_rows, _TIMED_STEPS * config.rows_per_step)
    first = (config.full_run.start_step or 0) + 1
    try:
        engine = lead(workload.make_engine(order=order, first_step=first, observer=Observer()))
        engine.run(_measured(engine, workload, found, started))
    except RecipeFailure as failure:
        if isinstance(failure.error, ContractError):
            raise ConfigError([as_mistake(failure.error)]) from failure
        found["failure"] = f"the recipe failed in {failure.where}: {failure.error}"[:500]
        if world.is_lost_peer(failure.error):
            found["failure"] = _said_by(peer_failure)
    except (world.PeerLost, world.Stopped) as lost:
        found["failure"] = _said_by(peer_failure, lost)
    return found


def _nothing_yet(config: Config) -> dict[str, Any]:
    """The facts of the model in the order of ``survey.json``, before anything is measured."""
    return {
        "num_parameters": None,
        "num_trainable_parameters": None,
        "parameter_bytes": None,
        "checkpoint_bytes": None,
        "vocab_size": None,
        "max_positions": None,
        "device": str(pick_device(config.engine.device)),
        "timing": {},
        "start_step": config.full_run.start_step,
        "resume": None,
        "failure": None,
        SURVEYED: None,
    }


def _said_by(peer_failure: Path, lost: BaseException | None = None) -> str:
    """What another process said before it ended; one that was killed says nothing."""
    if not peer_failure.is_file():
        if isinstance(lost, world.Stopped):
            raise lost
        world.wait_for_the_agent()
        return "another process of the survey ended"
    outcome = from_json(Outcome, read_json(peer_failure))
    return f"the recipe failed in {outcome.where}, {outcome.message}"[:500]


def _require_known_step(config: Config) -> None:
    """Where the model is too large for a survey, nothing can say after which step it was saved."""
    if config.recipe.get("resume_from") is None or config.full_run.start_step is not None:
        return
    rule = "must be given: the checkpoint could not be read to see after which step it was saved"
    raise ConfigError([Mistake(key="full_run.start_step", value="", rule=rule, remedy="give it")])


def _any_rows(num_rows: int | None, count: int) -> npt.NDArray[np.int64]:
    """Row ids to time steps with; none for a stream."""
    if num_rows is None:
        return np.empty(0, dtype=np.int64)
    return np.random.default_rng(0).integers(num_rows, size=count)


def _measured(engine: Engine, workload: Workload, found: dict[str, Any], started: float) -> Program:
    """Sizes, then a few steps at the rate 0 with their seconds, then the bytes of a state.

    Raises:
        ConfigError: rates that the user's code gives do not do as they should.
    """
    start_secs = time.perf_counter() - started
    with guard("build", step=None, row_ids=()):
        if mistakes := workload.model_mistakes(engine.model):
            raise ConfigError(mistakes)
    found.update(sizes(engine.model))
    found["built_dtypes"] = list(engine.built_dtypes)
    found[SURVEYED] = engine.own_rates()
    found["start_step"] = engine.step
    found["resume"] = engine.restored.values() if engine.restored is not None else None
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
