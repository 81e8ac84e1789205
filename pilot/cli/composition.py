"""One composition by Hydra, as plain containers, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra import compose as hydra_compose
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from pilot.arms.specs import ADDED, node_at
from pilot.cli.sweeps import Listed, add_override
from pilot.errors import Mistake

_COMPOSE_ERRORS = (HydraException, OmegaConfBaseException, YAMLError, OSError, UnicodeDecodeError)


@dataclass(frozen=True, kw_only=True)
class Composition:
    """What Hydra makes of the overrides; ``tree`` is None when it does not compose or resolve."""

    overrides: list[str]
    unresolved: dict[str, Any]
    tree: dict[str, Any] | None
    mistakes: list[Mistake]


def try_compose(overrides: Sequence[str]) -> tuple[DictConfig | None, list[Mistake]]:
    """What Hydra composes, or None and what it complains of."""
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


def compose_all(overrides: list[str], listed: Sequence[Listed]) -> Composition:
    """Compose and resolve; what is ``listed`` on the command line becomes arms."""
    cfg, failed = try_compose(overrides)
    if cfg is None:
        return Composition(overrides=overrides, unresolved={}, tree=None, mistakes=failed)
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
    return Composition(overrides=overrides, unresolved=unresolved, tree=tree, mistakes=missing)


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
