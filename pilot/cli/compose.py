"""Composes the configuration and reports all of its mistakes at once, before Hydra's app runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from pilot.arms.keys import RECIPE
from pilot.arms.specs import ADDED, node_at
from pilot.cli.arms import Baseline, check_arms
from pilot.cli.keys import check_keys, for_hydra
from pilot.cli.overrides import Sorted, sort_overrides
from pilot.cli.resume_from import start_from
from pilot.cli.search import hydra_session, use_user_dirs
from pilot.cli.settings import check_tree, known_settings
from pilot.cli.sweeps import Listed, add_override
from pilot.errors import ConfigError, Mistake
from pilot.recipe import find_module, find_recipe_file

# Stands for the recipe when none could be chosen, so that the other values are checked too.
_NO_RECIPE = "+recipe={name: none, module: none}"
_COMPOSE_ERRORS = (HydraException, OmegaConfBaseException, YAMLError, OSError, UnicodeDecodeError)


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


@dataclass(frozen=True, kw_only=True)
class _Composition:
    """What Hydra makes of the overrides; ``tree`` is None when it does not compose or resolve."""

    overrides: list[str]
    unresolved: dict[str, Any]
    tree: dict[str, Any] | None
    mistakes: list[Mistake]


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
        base, failed = _try_compose(_choices(parts))
        if base is None:
            raise ConfigError([*parts.mistakes, *failed])
        module, wrong_module = _module(base, parts, start)
        settings = known_settings(module) if module else []
        overrides, listed, wrong_keys = _checked(parts, base, [*settings, "resume_from"])
        made = _compose_all(overrides, listed)
        step, wrong_start = start_from(made.tree, made.unresolved, start)
        mistakes = [*parts.mistakes, *wrong_module, *wrong_keys, *made.mistakes, *wrong_start]
        notes: list[str] = []
        if made.tree is not None:
            found, notes = _judge(made, listed, module, settings, parts.recipe is not None)
            mistakes = _joined(mistakes, found)
        if mistakes or made.tree is None or module is None:
            raise ConfigError(mistakes)
        return Composed(
            tree=made.tree,
            overrides=(*made.overrides, *step),
            module_path=module,
            notes=(*_notes(parts), *notes),
            words=_without_lists(given, parts),
        )


def _without_lists(given: Sequence[str], parts: Sorted) -> tuple[str, ...]:
    lists = [item.override.input_line for item in parts.listed]
    return tuple(word for word in given if word not in lists)


def _groups() -> dict[str, list[str]]:
    loader = GlobalHydra.instance().config_loader()
    names = [name for name in loader.list_groups("") if name != "hydra"]
    return {name: loader.get_group_options(name) for name in names}


def _choices(parts: Sorted) -> list[str]:
    chosen = [str(override.input_line) for override in parts.choices.values()]
    if parts.recipe is None:
        chosen.append(_NO_RECIPE)
    return [*chosen, *(str(override.input_line) for override in parts.hydra)]


def _try_compose(overrides: Sequence[str]) -> tuple[DictConfig | None, list[Mistake]]:
    try:
        return hydra_compose("config", list(overrides)), []
    except _COMPOSE_ERRORS as error:
        cause = error.__cause__ or error
        names_file = str(cause).partition("\n")[0] in str(error)  # "In 'arms/mine': ..."
        text = " ".join(str(error if names_file else cause).split())
        rule = f"the configuration must compose: {text}"
        remedy = "mend the file or override named there"
        key = str(getattr(cause, "full_key", None) or "conf")
        return None, [Mistake(key=key, value=" ".join(overrides), rule=rule, remedy=remedy)]


def _module(base: DictConfig, parts: Sorted, start: Path) -> tuple[Path | None, list[Mistake]]:
    if parts.recipe is None:
        return None, []
    target = OmegaConf.select(base, "recipe.trainer", throw_on_missing=False)
    name = OmegaConf.select(base, "recipe.module", throw_on_missing=False)
    for override in parts.values:
        if override.key_or_group == "recipe.module":
            name = override.value()
        if override.key_or_group.lstrip("+") == "recipe.trainer":
            target = override.value()
    if not isinstance(name, str) and not isinstance(target, str):
        return None, []  # check_recipe says what is wrong
    try:
        if isinstance(target, str):
            return find_recipe_file({"trainer": target}, start), []
        assert isinstance(name, str)
        return find_module(name, start), []
    except ConfigError as error:
        return None, list(error.mistakes)


def _checked(
    parts: Sorted, base: DictConfig, settings: Sequence[str]
) -> tuple[list[str], list[Listed], list[Mistake]]:
    """Overrides for Hydra and lists whose keys are right, and the mistakes of the others."""
    plain = OmegaConf.to_container(base, resolve=False)
    has_recipe = parts.recipe is not None
    values, wrong = check_keys(parts.values, plain, settings, has_recipe)
    lists = [item.override for item in parts.listed]
    good, more = check_keys(lists, plain, settings, has_recipe)
    listed = [item for item in parts.listed if item.override in good]
    return [*_choices(parts), *for_hydra(values, plain)], listed, [*wrong, *more]


def _compose_all(overrides: list[str], listed: Sequence[Listed]) -> _Composition:
    cfg, failed = _try_compose(overrides)
    if cfg is None:
        return _Composition(overrides=overrides, unresolved={}, tree=None, mistakes=failed)
    missing: list[Mistake] = []
    if listed:
        overrides, missing = _with_lists(cfg, overrides, listed)
    tree: Any = None
    try:
        missing += [
            Mistake(key=key, value="???", rule="must be given", remedy=f"add {key}=...")
            for key in sorted(OmegaConf.missing_keys(cfg))
        ]
        tree = OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException as error:
        key = str(getattr(error, "full_key", "") or "conf")
        rule = f"must resolve: {str(error).splitlines()[0]}"
        missing.append(Mistake(key=key, value="", rule=rule, remedy="name a key that exists"))
    unresolved: Any = OmegaConf.to_container(cfg, resolve=False)
    return _Composition(overrides=overrides, unresolved=unresolved, tree=tree, mistakes=missing)


def _with_lists(
    cfg: DictConfig, overrides: list[str], listed: Sequence[Listed]
) -> tuple[list[str], list[Mistake]]:
    """Append what is listed to ``arms.add``, in ``cfg`` and in the overrides."""
    plain: Any = OmegaConf.to_container(cfg, resolve=False)
    added = node_at(plain, ADDED)
    if not isinstance(added, list):
        return overrides, []  # the schema says so
    changes = [*added, *(change for item in listed for change in item.changes)]
    try:
        text = add_override(changes)
    except ValueError:
        rule = "must be writable in Hydra's grammar together with the lists of -m"
        remedy = "use plain keys, without quotes"
        return overrides, [Mistake(key=ADDED, value=str(added), rule=rule, remedy=remedy)]
    cfg.arms.add = changes
    return [*overrides, text], []


def _judge(
    made: _Composition,
    listed: Sequence[Listed],
    module: Path | None,
    settings: Sequence[str],
    has_recipe: bool,
) -> tuple[list[Mistake], list[str]]:
    def check(tree: Mapping[str, Any]) -> list[Mistake]:
        return check_tree(tree, module, has_recipe)

    assert made.tree is not None
    mistakes = check(made.tree)
    baseline = Baseline(
        unresolved=made.unresolved,
        tree=made.tree,
        settings=settings,
        check=check,
        mistakes=mistakes,
        has_recipe=has_recipe,
    )
    wrong_arms, notes = check_arms(baseline, listed)
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
    return target.rsplit(".", 1)[-1]
