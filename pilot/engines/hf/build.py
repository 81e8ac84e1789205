"""Builds the user's Trainer with the user's own callable, and changes only what a pilot must.

``TrainingArguments`` are made inside the user's code, so they are changed where they are made: for
the time of the call every instance gets a scratch ``output_dir`` (a Trainer creates it when it is
built) and no trackers, savings and evaluations of its own; an arm's one changed argument is set at
the same place. The user's values are kept, to be compared and shown.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pilot.engines.hf import sharded
from pilot.errors import ConfigError, MissingExtra, Mistake
from pilot.mistakes import nearest
from pilot.recipe import load_module

_KEY = "recipe.trainer"
# Set before the arguments check each other, and after: these decide nothing about the mathematics.
_QUIET: Mapping[str, Any] = {
    "save_strategy": "no",
    "eval_strategy": "no",
    "load_best_model_at_end": False,
    "push_to_hub": False,
    "report_to": [],
    "disable_tqdm": True,
    "eval_on_start": False,
    "ignore_data_skip": False,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built:
    """A Trainer as the user builds it. ``own`` are the user's arguments that pilot replaced."""

    trainer: Any
    own: Mapping[str, Any]


def build_trainer(target: str, start: Path, scratch: Path, changes: Mapping[str, Any]) -> Built:
    """Call the user's callable and return its Trainer.

    Args:
        target: ``package.module:callable`` or ``path/to/file.py:callable``; without a name,
            ``build_trainer``.
        start: where a relative file path starts.
        scratch: the output folder that the Trainer gets instead of the user's.
        changes: training arguments by their own name, set in place of the user's.

    Raises:
        ConfigError: no such file, module or callable, or it returns no Trainer.
        MissingExtra: transformers or accelerate is not installed.
    """
    require_transformers()
    own: dict[str, Any] = {}
    with _changed_arguments(scratch, changes, own):
        trainer = find_callable(target, start)()
    from transformers import Trainer

    if not isinstance(trainer, Trainer):
        kind = type(trainer).__name__
        raise _mistake(target, f"must return a transformers Trainer, it returned {kind}", "")
    _quieten(trainer)
    return Built(trainer=trainer, own=own)


def require_transformers() -> None:
    """Raise ``MissingExtra`` where transformers' Trainer cannot be used."""
    for package in ("transformers", "accelerate"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise MissingExtra(package, "transformers", "engine=transformers") from error


def find_callable(target: str, start: Path) -> Callable[[], Any]:
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
        raise _mistake(target, f"{name} is no callable, it is a {type(found).__name__}", "")
    near = nearest(name, [n for n in vars(module) if not n.startswith("_")])
    hint = f"did you mean {place}:{near}?" if near else f"define {name}() in it"
    raise _mistake(target, f"{place} has no {name}", hint)


def _module(target: str, place: str, start: Path) -> Any:
    if place.endswith(".py"):
        path = start / Path(place).expanduser()
        if not path.is_file():
            raise _mistake(target, f"there is no file {path}", "paths start where pilot runs")
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


def _mistake(target: str, rule: str, remedy: str) -> ConfigError:
    remedy = remedy or "return the Trainer, ready to train; do not call train()"
    return ConfigError([Mistake(key=_KEY, value=repr(target), rule=rule, remedy=remedy)])


@contextlib.contextmanager
def _changed_arguments(
    scratch: Path, changes: Mapping[str, Any], own: dict[str, Any]
) -> Iterator[None]:
    """While it is open, every ``TrainingArguments`` that is made gets the changes."""
    from transformers import TrainingArguments

    original = TrainingArguments.__post_init__

    def changed(self: Any) -> None:
        wanted = {"output_dir": str(scratch), **_known(self, changes)}
        for name, value in wanted.items():
            own[name] = getattr(self, name)
            setattr(self, name, value)
        if "seed" in changes and getattr(self, "data_seed", None) is None:
            self.data_seed = own["seed"]  # the order of the rows stays the user's
        sharded.refuse(sharded.of_arguments(self))
        original(self)
        for name, value in _known(self, _QUIET).items():
            own[name] = getattr(self, name)
            setattr(self, name, value)

    TrainingArguments.__post_init__ = changed
    try:
        yield
    finally:
        TrainingArguments.__post_init__ = original


def _known(arguments: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``values`` that this version's arguments have; enumerations in their own type."""
    found = {}
    for name, value in values.items():
        if hasattr(arguments, name):
            current = getattr(arguments, name)
            is_enum = isinstance(value, str) and hasattr(type(current), "__members__")
            found[name] = type(current)(value) if is_enum else value
    return found


def _quieten(trainer: Any) -> None:
    """Take out what prints or draws a bar; the records are pilot's own."""
    from transformers.trainer_callback import PrinterCallback, ProgressCallback

    for kind in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(kind)
