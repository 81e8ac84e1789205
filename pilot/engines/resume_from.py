"""The native engine's start from a user's checkpoint.

The recipe's module may load it itself (``load_checkpoint``); else weights and optimizer state are
found by the names that training scripts use (``script_checkpoint.py``). Learning rate, decay and
all other settings stay those of the configuration: an arm that changes one must really have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pilot.engines import script_checkpoint
from pilot.engines.fit_weights import load_weights
from pilot.engines.optimizer_state import load_moments
from pilot.engines.weight_files import explained, read_torch, read_weights
from pilot.errors import ConfigError, Mistake
from pilot.recipe import load_module
from pilot.restored import DATA, OPTIMIZER, RANDOM, SCALE, SCHEDULE, WEIGHTS, Part, Restored
from pilot.user_checkpoint import KEY, TORCH, TRAINER, look, resume_path, sharded_optimizer, wrong

if TYPE_CHECKING:
    from pilot.engines.native import NativeEngine

Loader = Callable[[str, torch.nn.Module, torch.optim.Optimizer], Any]


def begin(engine: NativeEngine, module_path: Path) -> Restored | None:
    """Load what ``recipe.resume_from`` names into ``engine``; None: the run starts by itself.

    The engine then stands behind the checkpoint's step, also where only the file knows it.

    Raises:
        ConfigError: it cannot be loaded, does not fit the model, or is of another step.
    """
    path = resume_path(engine.config.recipe)
    if path is None:
        return None
    hook = getattr(load_module(module_path), "load_checkpoint", None)
    if callable(hook):
        step, parts, notes = _by_recipe(engine, path, hook)
    else:
        step, parts, notes = _by_names(engine, path)
    step = _agreed(engine, path, step)
    engine.first_step, engine.step = step + 1, step
    if engine.probe is not None:
        engine.probe.load_state_dict(engine.probe.state_dict())  # the weights have moved
    return Restored(
        source=path.name,
        step=step,
        parts=(*parts, *_own_parts(engine, step)),
        notes=tuple(notes),
    )


def _own_parts(engine: NativeEngine, step: int) -> list[Part]:
    """What does not come from the checkpoint in this engine."""
    seed = engine.config.pilot.seed
    prefix = engine.config.pilot.data == "prefix"
    rows = step * engine.config.batch.micro_batch_size * engine.config.batch.grad_accum_steps
    data = f"from row {rows} of the full run's order" if prefix else "a representative sample"
    return [
        Part(name=SCHEDULE, restored=True, why=f"full_run at step {step + 1}"),
        Part(name=RANDOM, restored=False, why=f"seeded with pilot.seed = {seed}"),
        Part(name=DATA, restored=prefix, why=data),
    ]


def _agreed(engine: NativeEngine, path: Path, step: int | None) -> int:
    """The checkpoint's step, the configuration's, or a mistake that names both."""
    planned, given = engine.first_step - 1, engine.config.full_run.start_step
    if step is None and given is None and planned == 0:
        looked = ", ".join(script_checkpoint.STEPS)
        rule = f"must be given: {path.name} does not say its step (looked for {looked})"
        remedy = "full_run.start_step=STEP, the optimizer steps that it has done"
        raise ConfigError([Mistake(key="full_run.start_step", value="", rule=rule, remedy=remedy)])
    if step is None:
        return planned
    if step != planned and (given is not None or planned != 0):
        rule = f"must be the step of the checkpoint: {KEY} = {path} was saved after step {step}"
        remedy = "drop full_run.start_step, or name the checkpoint of that step"
        key, value = "full_run.start_step", str(planned)
        raise ConfigError([Mistake(key=key, value=value, rule=rule, remedy=remedy)])
    return step


# ---- the recipe's own loader


def _by_recipe(
    engine: NativeEngine, path: Path, hook: Loader
) -> tuple[int | None, list[Part], list[str]]:
    if not path.exists():
        raise wrong(path, f"there is nothing at {path.absolute()}", "relative paths start here")
    before = {n: t.detach().clone() for n, t in engine.model.state_dict().items()}
    groups = [{k: v for k, v in g.items() if k != "params"} for g in engine.optimizer.param_groups]
    with explained(path, "load_checkpoint() of the recipe failed: it"):
        answer = hook(str(path), engine.model, engine.optimizer)
    notes = _put_back(engine.optimizer, groups)
    step, names = _answer(path, answer)
    moved = any(not torch.equal(t, before[n]) for n, t in engine.model.state_dict().items())
    why = "by the recipe's load_checkpoint"
    parts = [
        Part(name=WEIGHTS, restored=moved, why=why if moved else f"{why}: not one tensor changed"),
        Part(name=OPTIMIZER, restored=bool(engine.optimizer.state), why=why)
        if engine.optimizer.state
        else Part(name=OPTIMIZER, restored=False, why=f"fresh moments: {why} there is none"),
    ]
    known = {WEIGHTS, OPTIMIZER, "optimizer", "model", SCHEDULE, RANDOM, DATA}
    parts += [Part(name=name, restored=True, why=why) for name in names if name not in known]
    return step, parts, notes


def _answer(path: Path, answer: Any) -> tuple[int | None, list[str]]:
    """``load_checkpoint`` returns the step, or ``{"step": ..., "restored": [...]}``."""
    names: Sequence[Any] = []
    if isinstance(answer, Mapping):
        answer, names = answer.get("step"), answer.get("restored") or []
    step = script_checkpoint.whole_number(answer)
    if step is None and answer is not None:
        rule = f"load_checkpoint() must return the step, or {{'step': N}}; it returned {answer!r}"
        raise wrong(path, rule[:300], "the optimizer steps that the checkpoint has done")
    names = [names] if isinstance(names, str) else names
    return step, [str(name) for name in names]


def _put_back(optimizer: torch.optim.Optimizer, groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Give the groups the configuration's settings again; a loaded state brings its own."""
    other = []
    for group, built in zip(optimizer.param_groups, groups, strict=False):
        for key, value in built.items():
            if key != "lr" and group.get(key) != value:
                other.append(f"{key} {group.get(key)}")
            group[key] = value
    return _settings_note(other)


def _settings_note(other: Sequence[str]) -> list[str]:
    if not other:
        return []
    text = ", ".join(dict.fromkeys(other))
    return [f"the checkpoint's optimizer had {text}; the configuration's values are used"]


# ---- by the names that scripts use


def _by_names(engine: NativeEngine, path: Path) -> tuple[int | None, list[Part], list[str]]:
    found = look(path)
    step = found.step
    extra: Mapping[str, Any] = {}
    weights: Mapping[str, Any]
    if found.kind == TORCH:
        weights, extra = script_checkpoint.split(path, read_torch(found.weights[0]))
        step = step if step is not None else script_checkpoint.step_in(extra)
    else:
        weights = read_weights(found.weights)
        if found.optimizer is not None:
            extra = {"optimizer": read_torch(found.optimizer)}
    notes = load_weights(engine.model, path, weights, found.is_adapter)
    name = found.weights[0].name
    parts = [Part(name=WEIGHTS, restored=True, why=name)]
    state = script_checkpoint.optimizer_state_in(extra)
    if state is None:
        sharded = sharded_optimizer(found) if found.path.is_dir() else ""
        why = f"fresh moments: {sharded or f'{path.name} has no optimizer state'}"
        parts.append(Part(name=OPTIMIZER, restored=False, why=why))
    else:
        problem, other = load_moments(engine, state, by_trainer=found.kind == TRAINER)
        why = f"fresh moments: {problem}" if problem else (found.optimizer or path).name
        parts.append(Part(name=OPTIMIZER, restored=not problem, why=why))
        notes += _settings_note(other)
    if engine.scaler.is_enabled():
        parts.append(_scaler_part(engine, extra))
    return step, parts, notes


def _scaler_part(engine: NativeEngine, extra: Mapping[str, Any]) -> Part:
    state = script_checkpoint.scaler_state_in(extra)
    if not state:
        return Part(name=SCALE, restored=False, why="there is none: it begins anew")
    engine.scaler.load_state_dict(dict(state))
    return Part(name=SCALE, restored=True, why="of the checkpoint")
