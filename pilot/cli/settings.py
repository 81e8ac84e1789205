"""Checks what the schema leaves open: a recipe's own settings and an optimizer's arguments."""

from __future__ import annotations

import ast
import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

from pilot.config import conf_dir, find_mistakes
from pilot.errors import ConfigError, Mistake
from pilot.mistakes import mistake_from, nearest

# Keys of the recipe section that belong to pilot; all others are the recipe's own.
COMMON = ("name", "module", "trainer", "objective", "resume_from")
OBJECTIVES = ("lm", "preference", "rl", "regression")
_CHECKS = ("Settings", "check_settings")


def check_tree(
    tree: Mapping[str, Any], module_path: Path | None, has_recipe: bool
) -> list[Mistake]:
    """All mistakes in a composed, resolved configuration: schema, recipe, optimizer, checks.

    Without a recipe, which would set more, only types and bounds can be judged.
    """
    mistakes, config = find_mistakes(tree)
    if not has_recipe:
        return [m for m in mistakes if config is None and not m.key.startswith("recipe")]
    recipe = tree.get("recipe")
    if isinstance(recipe, Mapping):
        wrong = check_recipe(recipe, module_path)
        if any(m.key == "recipe.trainer" for m in mistakes):  # that is what is missing
            wrong = [m for m in wrong if m.key != "recipe.module" or recipe.get("module")]
        mistakes = [*mistakes, *wrong]
    optim = tree.get("optim")
    is_native = not (isinstance(recipe, Mapping) and recipe.get("trainer"))
    wrong_optim = any(m.key.startswith("optim") for m in mistakes)
    if isinstance(optim, Mapping) and is_native and not wrong_optim:
        mistakes = [*mistakes, *check_optimizer(optim)]
    return [*mistakes, *(check_skipped(config.checks.skip) if config else ())]


def check_recipe(recipe: Mapping[str, Any], module_path: Path | None) -> list[Mistake]:
    """All mistakes in the ``recipe`` section.

    A recipe's module may define a dataclass ``Settings`` (its fields are the keys it knows, with
    their types) and ``check_settings(settings) -> [(key, value, rule, remedy), ...]``. The module
    is imported only when it defines one of them.
    """
    mistakes = _check_common(recipe)
    if module_path is None or recipe.get("trainer"):
        return mistakes  # a script of the user's own: its names mean nothing to pilot
    module, failure = _load(module_path)
    if failure is not None:
        return [*mistakes, failure]
    try:
        return mistakes + (_check_types(module, recipe) or _check_values(module, recipe))
    except Exception as error:  # the recipe's own code, or types that cannot be read
        rule = f"its settings must be checkable: {type(error).__name__}: {error}"
        return [*mistakes, _wrong("module", str(module_path), rule, "mend the recipe's file")]


def known_settings(module_path: Path) -> list[str]:
    """The keys that the recipe's module declares, or none when it declares nothing."""
    settings = _settings(_load(module_path)[0])
    return [f.name for f in dataclasses.fields(settings)] if settings is not None else []


def check_optimizer(optim: Mapping[str, Any]) -> list[Mistake]:
    """Arguments that the optimizer's class does not take.

    torch is imported only when the section differs in its keys or class from our own groups. A
    recipe that builds its optimizer knows its keys.
    """
    if optim.get("_target_") is None or _is_ours(optim):
        return []
    from pilot.engines.optimizer import optimizer_arguments

    try:
        optimizer_arguments(optim)
    except ConfigError as error:
        return list(error.mistakes)
    return []


def check_skipped(names: Sequence[str]) -> list[Mistake]:
    """A mistake for every name in ``checks.skip`` that is no check: nothing is skipped silently."""
    import pilot.checks  # noqa: F401  (registers every check)
    from pilot.checks.registry import all_checks, unknown_names

    known = [info.name for info in all_checks()]
    mistakes = []
    for name in unknown_names(tuple(names)):
        near = nearest(name, known)
        hint = f"did you mean {near!r}? " if near else ""
        remedy = f"{hint}checks are: {', '.join(known)}"
        mistakes.append(_wrong("checks.skip", name, "must name a check", remedy))
    return mistakes


def _is_ours(optim: Mapping[str, Any]) -> bool:
    import yaml

    for path in (conf_dir() / "optim").glob("*.yaml"):
        group = yaml.safe_load(path.read_text(encoding="utf-8"))
        if group["_target_"] == optim.get("_target_") and set(optim) <= set(group):
            return True
    return False


def _check_common(recipe: Mapping[str, Any]) -> list[Mistake]:
    mistakes = []
    if recipe.get("trainer") and recipe.get("module"):
        rule = "a recipe is a module of pilot's contract or a Trainer, not both"
        mistakes.append(
            _wrong("module", recipe["module"], rule, "drop recipe.module or recipe.trainer")
        )
    trainer = recipe.get("trainer")
    if trainer and not isinstance(trainer, str):
        rule = "must be text: module:callable or path/to/file.py:callable"
        mistakes.append(_wrong("trainer", trainer, rule, "name what builds the Trainer"))
    for key in ("name",) if trainer else ("name", "module"):
        value = recipe.get(key)
        if not isinstance(value, str) or not value:
            rule = "must be given: text"
            mistakes.append(_wrong(key, value, rule, f"add {key}: to the recipe's file"))
    name = recipe.get("name")
    if isinstance(name, str) and (set("/\\\n") & set(name) or name.startswith(".")):
        mistakes.append(_wrong("name", name, "names a folder", "use letters, digits, _ and -"))
    objective = recipe.get("objective", "lm")
    if objective not in OBJECTIVES:
        mistakes.append(
            _wrong("objective", objective, "must be known", f"one of: {', '.join(OBJECTIVES)}")
        )
    return mistakes


def _wrong(key: str, value: object, rule: str, remedy: str) -> Mistake:
    shown = "" if value is None else repr(value)
    return Mistake(key=f"recipe.{key}", value=shown, rule=rule, remedy=remedy)


def _load(path: Path) -> tuple[ModuleType | None, Mistake | None]:
    try:
        tree = ast.parse(path.read_bytes(), filename=path.name)
        names = {n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
        if not names & set(_CHECKS):
            return None, None
        from pilot.recipe import load_module

        return load_module(path), None
    except (Exception, SystemExit) as error:  # the user's code: whatever it raises is explained
        place = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        rule = f"{path.name}{place} must be importable: {type(error).__name__}: {error}"
        return None, _wrong("module", str(path), rule, "mend the file; python FILE shows the trace")


def _settings(module: ModuleType | None) -> type[Any] | None:
    settings = getattr(module, "Settings", None)
    return settings if dataclasses.is_dataclass(settings) and isinstance(settings, type) else None


def _check_values(module: ModuleType | None, recipe: Mapping[str, Any]) -> list[Mistake]:
    checker = getattr(module, "check_settings", None)
    if checker is None:
        return []
    return [_wrong(key, value, rule, todo) for key, value, rule, todo in checker(dict(recipe))]


def _check_types(module: ModuleType | None, recipe: Mapping[str, Any]) -> list[Mistake]:
    from pydantic import TypeAdapter, ValidationError

    settings = _settings(module)
    if settings is None:
        return []
    own = {key: value for key, value in recipe.items() if key not in COMMON}
    _forbid_unknown(settings, set())
    try:  # as JSON: lists may be tuples, dictionaries dataclasses; numbers are still not guessed
        TypeAdapter(settings).validate_json(json.dumps(dict(own), default=str), strict=True)
    except ValidationError as error:
        known = [f"recipe.{f.name}" for f in dataclasses.fields(settings)]
        items = [{**item, "loc": ("recipe", *item["loc"])} for item in error.errors()]
        return [mistake_from(item, known) for item in items]
    return []


def _forbid_unknown(kind: type[Any], seen: set[type[Any]]) -> None:
    seen.add(kind)
    if not hasattr(kind, "__pydantic_config__"):
        kind.__pydantic_config__ = {"extra": "forbid", "allow_inf_nan": False}
    for hint in get_type_hints(kind).values():
        for inner in _dataclasses_in(hint):
            if inner not in seen:
                _forbid_unknown(inner, seen)


def _dataclasses_in(hint: Any) -> Iterable[type[Any]]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    for part in get_args(hint):
        yield from _dataclasses_in(part)
