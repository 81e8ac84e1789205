"""Composes the configuration and reports all of its mistakes at once, before Hydra's app runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from pilot.arms.keys import RECIPE
from pilot.cli.all_mistakes import Pass, all_mistakes, refuse_early
from pilot.cli.ask import CHOICES, GROUP, Answer, Question, ask, give_to_hydra
from pilot.cli.composition import compose_all, try_compose
from pilot.cli.keys import check_keys, for_hydra
from pilot.cli.overrides import Sorted, sort_overrides
from pilot.cli.resume_from import start_from
from pilot.cli.search import hydra_session, use_user_dirs
from pilot.cli.settings import known_settings
from pilot.cli.sweeps import Listed
from pilot.cli.trainer import (
    SETTINGS,
    is_trainer,
)
from pilot.cli.trainer_choice import (
    chosen_options,
    is_trainer_on_native,
    trainer_target,
    with_engine,
)
from pilot.engines.hf.argv import argv_of
from pilot.errors import ConfigError, Mistake
from pilot.recipe import find_module, find_recipe_file

# Stands for the recipe when none could be chosen, so that the other values are checked too.
_NO_RECIPE = "+recipe={name: none, module: none}"


@dataclass(frozen=True, kw_only=True)
class Composed:
    """A configuration without mistakes.

    ``tree`` is resolved, ``overrides`` is what Hydra has to be given for it, ``notes`` is what its
    author should know, ``words`` is what was given for the recipe as it stands, without lists.
    """

    tree: dict[str, Any]
    overrides: tuple[str, ...]
    module_path: Path
    notes: tuple[str, ...]
    words: tuple[str, ...]


def compose(
    given: Sequence[str], start: Path, config_dir: Path | None = None, *, multirun: bool = False
) -> Composed:
    """Compose the recipe and overrides ``given`` on the command line.

    Args:
        given: ``+recipe=NAME``, ``group=option``, ``key=value``.
        start: the user's directory: ``start/conf`` and ``start/recipes`` are looked at too.
        config_dir: another folder with groups.
        multirun: ``key=value,value`` makes each value an arm around the recipe.

    Raises:
        ConfigError: with every mistake, of form, choice, key, type, bound, recipe and arm.
        FolderError: ``config_dir`` is not a folder.
    """
    use_user_dirs(start, config_dir)
    with hydra_session():
        parts = sort_overrides(given, _groups(), multirun=multirun)
        base = _base(parts, _choices(parts))
        if is_trainer_on_native(parts, base):
            parts = with_engine(parts)
            base = _base(parts, _choices(parts))
        found = _pass(parts, start, base, _choices(parts))
        answer = None
        if found.tree is not None and is_trainer(found.tree):
            optim = str(chosen_options(_choices(parts)).get("optim"))
            refuse_early(found, optim, "optim" in parts.choices)
            answer = _asked(found.tree, start)
            choices = [*CHOICES, *_choices(parts)]
            found = _pass(parts, start, _base(parts, choices), choices)
        mistakes, notes = all_mistakes(found, parts.recipe is not None, answer)
        if mistakes or found.tree is None or found.module is None:
            raise ConfigError(mistakes)
        return Composed(
            tree=found.tree,
            overrides=tuple(found.made.overrides),
            module_path=found.module,
            notes=(*(_notes(parts) if answer is None else ()), *notes),
            words=_without_lists(given, parts),
        )


def _base(parts: Sorted, choices: Sequence[str]) -> DictConfig:
    """The configuration of the choices alone."""
    base, failed = try_compose(choices)
    if base is None:
        raise ConfigError([*parts.mistakes, *failed])
    return base


def _pass(parts: Sorted, start: Path, base: DictConfig, choices: list[str]) -> Pass:
    module, wrong_module = _module(base, parts, start)
    settings: Sequence[str] = ()
    if module is not None:
        settings = SETTINGS if trainer_target(base, parts.values) else known_settings(module)
    overrides, listed, wrong_keys = _checked(parts, base, [*settings, "resume_from"], choices)
    made = compose_all(overrides, listed)
    step, wrong_start = start_from(made.tree, made.unresolved, start)
    made = replace(made, overrides=[*made.overrides, *step])
    mistakes = [*parts.mistakes, *wrong_module, *wrong_keys, *made.mistakes, *wrong_start]
    return Pass(made=made, listed=listed, settings=settings, module=module, mistakes=mistakes)


def _asked(tree: Mapping[str, Any], start: Path) -> Answer:
    """Ask the Trainer, and let Hydra know what it says."""
    recipe = tree["recipe"]
    question = Question(
        target=str(recipe["trainer"]),
        seed=int(tree["pilot"]["seed"]),
        arguments=recipe.get("arguments") or {},
        num_processes=tree["launcher"]["num_processes"],
        timeout_secs=tree["launcher"]["timeout_secs"],
        argv=argv_of(recipe),
    )
    answer = ask(question, start)
    give_to_hydra(answer, tree["full_run"])
    return answer


def names_trainer(given: Sequence[str], start: Path, config_dir: Path | None = None) -> bool:
    """Whether the recipe ``given`` on the command line is a Trainer's; its mistakes are no matter.

    Raises:
        FolderError: ``config_dir`` is not a folder.
    """
    use_user_dirs(start, config_dir)
    with hydra_session():
        parts = sort_overrides(given, _groups())
        base, _ = try_compose(_choices(parts))
        return base is not None and bool(trainer_target(base, parts.values))


def _without_lists(given: Sequence[str], parts: Sorted) -> tuple[str, ...]:
    lists = [item.override.input_line for item in parts.listed]
    return tuple(word for word in given if word not in lists)


def _groups() -> dict[str, list[str]]:
    loader = GlobalHydra.instance().config_loader()
    names = [name for name in loader.list_groups("") if name not in ("hydra", GROUP)]
    options = {name: loader.get_group_options(name) for name in names}
    return {name: [o for o in found if o != GROUP] for name, found in options.items()}


def _choices(parts: Sorted) -> list[str]:
    chosen = [str(override.input_line) for override in parts.choices.values()]
    if parts.recipe is None:
        chosen.append(_NO_RECIPE)
    return [*chosen, *(str(override.input_line) for override in parts.hydra)]


def _module(base: DictConfig, parts: Sorted, start: Path) -> tuple[Path | None, list[Mistake]]:
    if parts.recipe is None:
        return None, []
    target = trainer_target(base, parts.values)
    name = OmegaConf.select(base, "recipe.module", throw_on_missing=False)
    for override in parts.values:
        if override.key_or_group == "recipe.module":
            name = override.value()
    if not isinstance(name, str) and not target:
        return None, []  # check_recipe says what is wrong
    try:
        if target:
            return find_recipe_file({"trainer": target}, start), []
        return find_module(str(name), start), []
    except ConfigError as error:
        return None, list(error.mistakes)


def _checked(
    parts: Sorted, base: DictConfig, settings: Sequence[str], choices: Sequence[str]
) -> tuple[list[str], list[Listed], list[Mistake]]:
    """Overrides for Hydra and lists whose keys are right, and the mistakes of the others."""
    plain = OmegaConf.to_container(base, resolve=False)
    has_recipe = parts.recipe is not None
    values, wrong = check_keys(parts.values, plain, settings, has_recipe)
    lists = [item.override for item in parts.listed]
    good, more = check_keys(lists, plain, settings, has_recipe)
    listed = [item for item in parts.listed if item.override in good]
    return [*choices, *for_hydra(values, plain)], listed, [*wrong, *more]


def _notes(parts: Sorted) -> tuple[str, ...]:
    given = {override.key_or_group: override for override in parts.values}
    target = given.get("optim._target_")
    if "optim.learning_rate" in given or not (target or "optim" in parts.choices):
        return ()
    own = _optimizer([str(parts.choices[RECIPE].input_line)])
    now = str(target.value()) if target else _optimizer(_choices(parts))
    if now == own:
        return ()
    return (
        f"optim.learning_rate is the recipe's, chosen for {_short(own)}; "
        f"this run uses {_short(now)}: consider another optim.learning_rate",
    )


def _optimizer(overrides: Sequence[str]) -> str:
    return str(OmegaConf.select(hydra_compose("config", list(overrides)), "optim._target_"))


def _short(target: str) -> str:
    return "the recipe's own optimizer" if target == "None" else target.rsplit(".", 1)[-1]
