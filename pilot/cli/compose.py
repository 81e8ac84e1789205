"""Composes the configuration and reports all of its mistakes at once, before Hydra's app runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from pilot.arms.keys import RECIPE
from pilot.cli.arms import Baseline, check_arms
from pilot.cli.ask import CHOICES, GROUP, Answer, Question, ask, give_to_hydra
from pilot.cli.composition import Composition, compose_all, try_compose
from pilot.cli.keys import check_keys, for_hydra
from pilot.cli.overrides import Sorted, sort_overrides
from pilot.cli.resume_from import start_from
from pilot.cli.search import hydra_session, use_user_dirs
from pilot.cli.settings import check_recipe, check_tree, known_settings
from pilot.cli.sweeps import Listed
from pilot.cli.trainer import (
    SETTINGS,
    baseline_mistakes,
    early_mistakes,
    is_trainer,
    replaced,
    trainer_mistakes,
)
from pilot.cli.trainer_choice import (
    chosen_options,
    is_trainer_on_native,
    trainer_target,
    with_engine,
)
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
            _refuse_early(found, parts)
            answer = _asked(found.tree, start)
            choices = [*CHOICES, *_choices(parts)]
            found = _pass(parts, start, _base(parts, choices), choices)
        mistakes, notes = _judged(found, parts, answer)
        if mistakes or found.tree is None or found.module is None:
            raise ConfigError(mistakes)
        return Composed(
            tree=found.tree,
            overrides=tuple(found.made.overrides),
            module_path=found.module,
            notes=(*(_notes(parts) if answer is None else ()), *notes),
            words=_without_lists(given, parts),
        )


@dataclass(frozen=True, kw_only=True)
class _Pass:
    """One composition of the command line, and what is wrong with it so far."""

    made: Composition
    listed: Sequence[Listed]
    settings: Sequence[str]
    module: Path | None
    mistakes: list[Mistake]

    @property
    def tree(self) -> dict[str, Any] | None:
        """The resolved configuration, or None when there is none."""
        return self.made.tree


def _base(parts: Sorted, choices: Sequence[str]) -> DictConfig:
    """The configuration of the choices alone."""
    base, failed = try_compose(choices)
    if base is None:
        raise ConfigError([*parts.mistakes, *failed])
    return base


def _pass(parts: Sorted, start: Path, base: DictConfig, choices: list[str]) -> _Pass:
    module, wrong_module = _module(base, parts, start)
    settings: Sequence[str] = ()
    if module is not None:
        own = SETTINGS if trainer_target(base, parts.values) else known_settings(module)
        settings = [*own, "resume_from"]
    overrides, listed, wrong_keys = _checked(parts, base, settings, choices)
    made = compose_all(overrides, listed)
    step, wrong_start = start_from(made.tree, made.unresolved, start)
    made = replace(made, overrides=[*made.overrides, *step])
    mistakes = [*parts.mistakes, *wrong_module, *wrong_keys, *made.mistakes, *wrong_start]
    return _Pass(made=made, listed=listed, settings=settings, module=module, mistakes=mistakes)


def _judged(
    found: _Pass, parts: Sorted, answer: Answer | None
) -> tuple[list[Mistake], Sequence[str]]:
    """All mistakes, and the notes of a configuration without any."""
    if found.tree is None:
        return found.mistakes, ()

    def check(tree: Mapping[str, Any]) -> list[Mistake]:
        more = trainer_mistakes(tree, answer) if answer is not None else []
        first = check_tree(tree, found.module, parts.recipe is not None)
        return _joined(first, more)

    mistakes, notes = _judge(found, check, parts.recipe is not None)
    if answer is not None:
        mistakes = _joined(mistakes, baseline_mistakes(found.tree, answer))
        notes = [*answer.notes, *replaced(found.tree, answer), *notes]
    return _joined(found.mistakes, mistakes), notes


def _refuse_early(found: _Pass, parts: Sorted) -> None:
    """What can be said at once is not left until a large model has been built."""
    assert found.tree is not None
    tree = found.tree
    choice = str(chosen_options(_choices(parts)).get("optim"))
    early = early_mistakes(tree, choice, "optim" in parts.choices)
    types = check_tree(tree, None, has_recipe=False)
    recipe = tree["recipe"]
    common = check_recipe(recipe, None) if isinstance(recipe, Mapping) else []
    mistakes = _joined(_joined(found.mistakes, [*types, *common]), early)
    if mistakes:
        raise ConfigError(mistakes)


def _asked(tree: Mapping[str, Any], start: Path) -> Answer:
    """Ask the Trainer, and let Hydra know what it says."""
    recipe = tree["recipe"]
    question = Question(
        target=str(recipe["trainer"]),
        seed=int(tree["pilot"]["seed"]),
        arguments=recipe.get("arguments") or {},
        num_processes=tree["launcher"]["num_processes"],
        timeout_secs=tree["launcher"]["timeout_secs"],
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


def _judge(
    found: _Pass, check: Callable[[Mapping[str, Any]], list[Mistake]], has_recipe: bool
) -> tuple[list[Mistake], list[str]]:
    made = found.made
    assert made.tree is not None
    mistakes = check(made.tree)
    baseline = Baseline(
        unresolved=made.unresolved,
        tree=made.tree,
        settings=found.settings,
        check=check,
        mistakes=mistakes,
        has_recipe=has_recipe,
    )
    wrong_arms, notes = check_arms(baseline, found.listed)
    return [*mistakes, *wrong_arms], notes


def _joined(first: Sequence[Mistake], later: Sequence[Mistake]) -> list[Mistake]:
    """Both, but no later mistake about a key that is wrong already: it only follows."""
    wrong = {mistake.key for mistake in first}
    return [*first, *(mistake for mistake in later if mistake.key not in wrong)]


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
