"""Builds the user's Trainer with the user's own callable, and changes only what a pilot must.

The callable is found, called with the random generators seeded, and what it returns is checked.
``pilot/engines/hf/setting.py`` sets the arguments; what prints, tracks, uploads or ends a run by
itself is taken out here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pilot.engines import seeds
from pilot.engines.hf.setting import Setting, set_over, trained
from pilot.errors import ConfigError, MissingExtra, Mistake, UsageError
from pilot.mistakes import nearest
from pilot.recipe import load_module

_KEY = "recipe.trainer"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built:
    """A Trainer as the user builds it.

    ``own`` are the user's arguments that pilot replaced, ``notes`` say what of it does not act in a
    pilot.
    """

    trainer: Any
    own: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def build_trainer(
    target: str,
    start: Path,
    scratch: Path,
    changes: Mapping[str, Any],
    seed: int | None = None,
    argv: Sequence[str] = (),
) -> Built:
    """Call the user's callable and return its Trainer.

    Args:
        target: ``package.module:callable`` or ``path/to/file.py:callable``; without a name,
            ``build_trainer``.
        start: where a relative file path starts.
        scratch: the output folder that the Trainer gets instead of the user's.
        changes: training arguments by their own name, set in place of the user's.
        seed: for Python, NumPy and torch before the callable is called; None: left alone.
        argv: the words behind the script's name, for a script that reads its command line.

    Raises:
        ConfigError: no such file, module or callable, or it returns no Trainer to be trained.
        MissingExtra: transformers or accelerate is not installed.
    """
    require_transformers()
    setting = Setting(scratch, changes)
    if seed is not None:
        seeds.seed_everything(seed)
    with set_over(setting), _command_line(target, argv):
        trainer = _called(target, find_callable(target, start))
    setting.finish(trainer)
    notes = [*_silence(trainer), *_settle_model(trainer), *_own_notes(setting.own)]
    return Built(trainer=trainer, own=setting.own, notes=tuple(notes))


def require_transformers() -> None:
    """Raise ``MissingExtra`` where transformers' Trainer cannot be used."""
    for package in ("transformers", "accelerate"):
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            raise MissingExtra(package, "transformers", "engine=transformers") from error
        except ImportError as error:
            raise UsageError(
                f"engine=transformers: {package} cannot be imported: {error}\n"
                f"    remedy: mend the installation; python -c 'import {package}' shows the trace"
            ) from error


def find_callable(target: str, start: Path) -> Callable[..., Any]:
    """The callable that ``target`` names.

    Raises:
        ConfigError: with what was looked for.
    """
    place, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    name = name or "build_trainer"
    module = _module(target, place, start)
    found = getattr(module, name, None)
    if callable(found):
        return found  # type: ignore[no-any-return]
    if found is not None:
        remedy = "name the function that builds and returns the Trainer"
        raise _mistake(target, f"{name} is no callable, it is a {type(found).__name__}", remedy)
    near = nearest(name, [n for n in vars(module) if not n.startswith("_")])
    hint = f"did you mean {place}:{near}?" if near else f"define {name}() in it"
    raise _mistake(target, f"{place} has no {name}", hint)


@contextlib.contextmanager
def _command_line(target: str, argv: Sequence[str]) -> Iterator[None]:
    """``sys.argv`` as the script would see it: its own name, and none of pilot's words."""
    kept, sys.argv = sys.argv, [target.partition(":")[0], *argv]
    try:
        yield
    finally:
        sys.argv = kept


def _module(target: str, place: str, start: Path) -> Any:
    if place.endswith(".py"):
        path = start / Path(place).expanduser()
        if not path.is_file():
            raise _mistake(target, f"there is no file {path}", "paths start where pilot runs")
        for folder in (str(path.parent), str(start)):  # as `python FILE` has it
            if folder not in sys.path:
                sys.path.insert(0, folder)
        return load_module(path)
    if str(start) not in sys.path:
        sys.path.insert(0, str(start))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and not (place == error.name or place.startswith(f"{error.name}.")):
            raise  # the module is there; what it imports is not
        rule = f"there is no module {place}"
        raise _mistake(target, rule, "give module:callable or path/to/file.py:callable") from error


def _called(target: str, build: Callable[..., Any]) -> Any:
    """What the user's callable returns, when that is a Trainer to be trained."""
    from transformers import Trainer

    needed = _needed(build)
    if needed:
        rule = f"is called without arguments, and needs {', '.join(needed)}"
        raise _mistake(target, rule, "give them defaults, or name a function that fills them in")
    trainer = build()
    if not isinstance(trainer, Trainer):
        kind = "None" if trainer is None else type(trainer).__name__
        remedy = "end it with `return trainer`" if trainer is None else ""
        raise _mistake(target, f"must return a transformers Trainer, it returned {kind}", remedy)
    if trainer.state.global_step:
        raise trained()
    return trainer


def _needed(build: Callable[..., Any]) -> list[str]:
    """Names of the arguments without which ``build`` cannot be called."""
    try:
        parameters = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in variable]


def _mistake(target: str, rule: str, remedy: str) -> ConfigError:
    remedy = remedy or "return the Trainer, ready to train; do not call train()"
    return ConfigError([Mistake(key=_KEY, value=repr(target), rule=rule, remedy=remedy)])


def _silence(trainer: Any) -> list[str]:
    """Take out what prints, draws a bar, tracks, or ends a run by evaluations of its own."""
    from transformers import EarlyStoppingCallback
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
    from transformers.trainer_callback import PrinterCallback, ProgressCallback

    ours = getattr(sys.modules.get("pilot.callback"), "PilotCallback", PrinterCallback)
    silent = (PrinterCallback, ProgressCallback, ours, *INTEGRATION_TO_CALLBACK.values())
    handler, notes = trainer.callback_handler, []
    if any(isinstance(callback, EarlyStoppingCallback) for callback in handler.callbacks):
        notes.append(
            "EarlyStoppingCallback does not act in the pilot: it waits for evaluations of the "
            "Trainer's own; the full run may end earlier than planned"
        )
    removed = (*silent, EarlyStoppingCallback)
    handler.callbacks = [c for c in handler.callbacks if not isinstance(c, removed)]
    return notes


def _settle_model(trainer: Any) -> list[str]:
    """With ``model_init``, ``train`` would build another model than the one that is watched.

    So the model is made now, as ``train`` makes it: seeded, and put where it is trained.
    """
    if getattr(trainer, "model_init", None) is None:
        return []
    from transformers.trainer_utils import enable_full_determinism, set_seed

    args = trainer.args
    enable_full_determinism(args.seed) if args.full_determinism else set_seed(args.seed)
    trainer.model = trainer.call_model_init()
    if getattr(trainer, "place_model_on_device", True):
        trainer._move_model_to_device(trainer.model, args.device)
    trainer.model_wrapped, trainer.model_init = trainer.model, None
    return []


def _own_notes(own: Mapping[str, Any]) -> list[str]:
    """What the user's arguments ask for and the pilot does not do, where that can matter."""
    notes = []
    if own.get("auto_find_batch_size"):
        notes.append(
            "auto_find_batch_size is off in the pilot: the batch of the arguments is trained, and "
            "running out of memory is a result"
        )
    return notes
