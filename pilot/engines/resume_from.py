"""The native engine's start from a user's checkpoint.

The recipe's module may load it itself (``load_checkpoint``); else weights and optimizer state are
found by the names that training scripts use. Learning rate, decay and all other settings stay those
of the configuration: an arm that changes one of them must really have it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pilot.engines.optimizer_state import load_moments
from pilot.engines.weight_files import explained, listed, read_torch, read_weights, tied_names
from pilot.errors import ConfigError, Mistake
from pilot.recipe import load_module
from pilot.restored import DATA, OPTIMIZER, RANDOM, SCALE, SCHEDULE, WEIGHTS, Part, Restored
from pilot.user_checkpoint import KEY, TORCH, TRAINER, look, resume_path, sharded_optimizer, wrong

if TYPE_CHECKING:
    from pilot.engines.native import NativeEngine

_MODEL = ("model", "model_state_dict", "state_dict", "module", "model_state", "net", "weights")
_OPTIMIZER = (
    "optimizer",
    "optimizer_state_dict",
    "optimizer_states",
    "optimizer_state",
    "optim",
    "optim_state_dict",
    "last_optimizer_state",
)
_STEP = ("step", "global_step", "iteration", "iter_num", "update", "num_updates", "iter", "steps")
_SCALER = ("scaler", "grad_scaler", "scaler_state_dict")
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
        looked = ", ".join(_STEP)
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
    step = whole_number(answer)
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
        content = _unwrapped(read_torch(found.weights[0]))
        weights, extra = _split(path, content)
        step = step if step is not None else _step_in(extra)
    else:
        weights = read_weights(found.weights)
        if found.optimizer is not None:
            extra = {"optimizer": read_torch(found.optimizer)}
    notes = _load_weights(engine.model, path, weights, found.is_adapter)
    name = found.weights[0].name
    parts = [Part(name=WEIGHTS, restored=True, why=name)]
    state = next((extra[key] for key in _OPTIMIZER if extra.get(key)), None)
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
    state = next((extra[key] for key in _SCALER if isinstance(extra.get(key), dict)), None)
    if not state:
        return Part(name=SCALE, restored=False, why="there is none: it begins anew")
    engine.scaler.load_state_dict(dict(state))
    return Part(name=SCALE, restored=True, why="of the checkpoint")


def _unwrapped(content: Any) -> Any:
    """The mapping that holds the model: some trainers put all of it under ``state``."""
    inner = content.get("state") if isinstance(content, Mapping) else None
    has_model = isinstance(inner, Mapping) and any(key in inner for key in _MODEL)
    return inner if has_model else content


def _split(path: Path, content: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The weights, and what lies beside them."""
    if isinstance(content, Mapping):
        for key in _MODEL:
            if isinstance(content.get(key), Mapping) and _has_tensors(content[key]):
                return content[key], content
        if content and all(isinstance(value, torch.Tensor) for value in content.values()):
            return content, {}
        keys = ", ".join(str(key) for key in list(content)[:8])
        rule = f"has no weights that are known: looked for {', '.join(_MODEL)}; it has {keys}"
    else:
        rule = f"must hold a dictionary, it holds a {type(content).__name__}"
    raise wrong(path, rule, "define load_checkpoint(path, model, optimizer) in the recipe's module")


def _has_tensors(values: Mapping[Any, Any]) -> bool:
    return any(isinstance(value, torch.Tensor) for value in values.values())


def _step_in(extra: Mapping[str, Any]) -> int | None:
    for key in _STEP:
        if (found := whole_number(extra.get(key))) is not None:
            return found
    history = extra.get("optimizer_history")
    last = history[-1] if isinstance(history, list) and history else None
    return whole_number(last.get("num_updates")) if isinstance(last, Mapping) else None


def whole_number(value: Any) -> int | None:
    """A count of steps from an integer of any kind (Python, NumPy, a tensor); None: it is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, torch.Tensor):
        value = value.item() if value.numel() == 1 else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        found = operator.index(value)
    except TypeError:
        return None
    return found if found >= 0 else None


def _load_weights(
    model: torch.nn.Module, path: Path, weights: Mapping[str, Any], is_adapter: bool
) -> list[str]:
    """Put the weights into the model; every tensor must have its place.

    Raises:
        ConfigError: with what is missing, unknown or of another shape.
    """
    if is_adapter:
        weights = _adapter_names(model, path, weights)
    state = model.state_dict()
    named = _renamed({k: v for k, v in weights.items() if isinstance(v, torch.Tensor)}, set(state))
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    lost = {name for name in state if name not in named}
    lost -= tied_names(model, lost) | frozen
    extra = set(named) - set(state)
    shapes = {
        f"{n} {list(named[n].shape)} and not {list(t.shape)}"
        for n, t in state.items()
        if n in named and named[n].shape != t.shape
    }
    wrongs = (("missing", lost), ("unknown to it", extra), ("of another shape", shapes))
    lines = [listed(what, names) for what, names in wrongs if names]
    if lines:
        rule = f"its weights do not fit the model: {'; '.join(lines)}"
        remedy = "build the model that was saved, or define load_checkpoint() in the recipe"
        raise wrong(path, rule, remedy)
    model.load_state_dict(named, strict=False)
    rebuilt = frozen - set(named)
    notes = [f"frozen weights are those that the recipe builds: {len(rebuilt)}"] if rebuilt else []
    kinds = sorted({str(t.dtype)[6:] for t in named.values() if t.is_floating_point()})
    here = sorted({str(t.dtype)[6:] for t in state.values() if t.is_floating_point()})
    if kinds != here:
        notes.append(f"weights saved in {', '.join(kinds)} are trained in {', '.join(here)}")
    return notes


def _renamed(weights: dict[str, torch.Tensor], known: set[str]) -> dict[str, torch.Tensor]:
    """Under the model's own names: without what wrappers (DDP, ``torch.compile``) put before them.

    A name that fits as it is stays; ``model.`` goes only where names fit better without it.
    """
    places = {_bare(name): name for name in known}

    def placed(inner: str) -> dict[str, torch.Tensor]:
        found = {}
        for name, tensor in weights.items():
            bare = _bare(_bare(name).removeprefix(inner))
            found[places.get(bare, name)] = tensor
        return found

    tries = [weights, placed(""), placed("model.")]
    return max(tries, key=lambda one: len(known & set(one)))  # the first of equals


def _bare(name: str) -> str:
    name = name.replace("_orig_mod.", "")
    while name.startswith("module."):
        name = name.removeprefix("module.")
    return name


def _adapter_names(
    model: torch.nn.Module, path: Path, weights: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The tensors of an adapter's file under the names that the model has for them."""
    if not hasattr(model, "peft_config"):
        rule = "holds an adapter alone; the recipe's model has none"
        raise wrong(path, rule, "build the model with that adapter (recipe.lora)")
    name = next(iter(model.peft_config))  # type: ignore[arg-type]
    found = {}
    for key, tensor in weights.items():
        head, dot, tail = key.rpartition(".")
        parameter = f"{head}.{name}{dot}{tail}"
        in_model = parameter in model.state_dict()
        found[parameter if in_model else key] = tensor
    return found
