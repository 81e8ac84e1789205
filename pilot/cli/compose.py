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

from pilot.cli.keys import check_keys, for_hydra
from pilot.cli.overrides import RECIPE, Sorted, sort_overrides
from pilot.cli.search import hydra_session, use_user_dirs
from pilot.cli.settings import check_optimizer, check_recipe, check_skipped, known_settings
from pilot.config import find_mistakes
from pilot.errors import ConfigError, Mistake
from pilot.recipe import find_module

# Stands for the recipe when none could be chosen, so that the other values are checked too.
_NO_RECIPE = "+recipe={name: none, module: none}"
_COMPOSE_ERRORS = (HydraException, OmegaConfBaseException, YAMLError, OSError, UnicodeDecodeError)


@dataclass(frozen=True, kw_only=True)
class Composed:
    """A configuration without mistakes.

    ``tree`` is resolved, ``overrides`` is what Hydra has to be given for it, ``notes`` is what its
    author should know.
    """

    tree: dict[str, Any]
    overrides: tuple[str, ...]
    module_path: Path
    notes: tuple[str, ...]


def compose(given: Sequence[str], start: Path, config_dir: Path | None = None) -> Composed:
    """Compose the recipe and overrides ``given`` on the command line.

    Args:
        given: ``+recipe=NAME``, ``group=option``, ``key=value``.
        start: the user's directory: ``start/conf`` and ``start/recipes`` are looked at too.
        config_dir: another folder with groups.

    Raises:
        ConfigError: with every mistake, of form, choice, key, type, bound and recipe.
        FolderError: ``config_dir`` is not a folder.
    """
    use_user_dirs(start, config_dir)
    with hydra_session():
        parts = sort_overrides(given, _groups())
        mistakes = list(parts.mistakes)
        base, failed = _try_compose(_choices(parts))
        if base is None:
            raise ConfigError([*mistakes, *failed])
        module, failed = _module(base, parts, start)
        mistakes += failed
        settings = known_settings(module) if module else []
        plain = OmegaConf.to_container(base, resolve=False)
        good, failed = check_keys(parts.values, plain, settings, parts.recipe is not None)
        mistakes += failed
        overrides = [*_choices(parts), *for_hydra(good, plain)]
        tree, failed = _resolve(overrides)
        mistakes += failed
        if tree is not None:
            mistakes = _joined(mistakes, _judge(tree, module, parts.recipe is not None))
        if mistakes or tree is None or module is None:
            raise ConfigError(mistakes)
        notes = _notes(parts)
    return Composed(tree=tree, overrides=tuple(overrides), module_path=module, notes=notes)


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
        text = " ".join(str(cause).split())
        rule = f"the configuration must compose: {text}"
        remedy = "mend the file or override named there"
        return None, [Mistake(key="conf", value=" ".join(overrides), rule=rule, remedy=remedy)]


def _module(base: DictConfig, parts: Sorted, start: Path) -> tuple[Path | None, list[Mistake]]:
    if parts.recipe is None:
        return None, []
    name = OmegaConf.select(base, "recipe.module", throw_on_missing=False)
    for override in parts.values:
        if override.key_or_group == "recipe.module":
            name = override.value()
    if not isinstance(name, str):
        return None, []  # check_recipe says what is wrong
    try:
        return find_module(name, start), []
    except ConfigError as error:
        return None, list(error.mistakes)


def _resolve(overrides: Sequence[str]) -> tuple[dict[str, Any] | None, list[Mistake]]:
    cfg, failed = _try_compose(overrides)
    if cfg is None:
        return None, failed
    missing: list[Mistake] = []
    try:
        missing = [
            Mistake(key=key, value="???", rule="must be given", remedy=f"add {key}=...")
            for key in sorted(OmegaConf.missing_keys(cfg))
        ]
        tree = OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException as error:
        key = str(getattr(error, "full_key", "") or "conf")
        rule = f"must resolve: {str(error).splitlines()[0]}"
        return None, [
            *missing,
            Mistake(key=key, value="", rule=rule, remedy="name a key that exists"),
        ]
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}, missing


def _judge(tree: Mapping[str, Any], module: Path | None, has_recipe: bool) -> list[Mistake]:
    mistakes, config = find_mistakes(tree)
    if not has_recipe:  # a recipe would set more: only types and bounds can be judged
        return [m for m in mistakes if config is None and not m.key.startswith(RECIPE)]
    recipe = tree.get(RECIPE)
    if isinstance(recipe, Mapping):
        mistakes = [*mistakes, *check_recipe(recipe, module)]
    optim = tree.get("optim")
    if isinstance(optim, Mapping) and not any(m.key.startswith("optim") for m in mistakes):
        mistakes = [*mistakes, *check_optimizer(optim)]
    return [*mistakes, *(check_skipped(config.checks.skip) if config else ())]


def _joined(first: Sequence[Mistake], later: Sequence[Mistake]) -> list[Mistake]:
    """Both, but no later mistake about a key that is wrong already: it only follows."""
    wrong = {mistake.key for mistake in first}
    return [*first, *(mistake for mistake in later if mistake.key not in wrong)]


def _notes(parts: Sorted) -> tuple[str, ...]:
    given = {override.key_or_group: override for override in parts.values}
    if "optim.learning_rate" in given:
        return ()
    target = given.get("optim._target_")
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
