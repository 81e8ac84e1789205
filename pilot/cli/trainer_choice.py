"""Whether the command line and the recipe's file choose a Trainer, before anything is composed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from hydra import compose as hydra_compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from pilot.cli.overrides import Sorted

_ENGINE = "engine=transformers"


def trainer_target(base: DictConfig, values: Sequence[Override]) -> str:
    """``recipe.trainer`` as it will be; empty: the recipe is a module of pilot's contract."""
    target: Any = OmegaConf.select(base, "recipe.trainer", throw_on_missing=False)
    for override in values:
        if override.key_or_group == "recipe.trainer":
            target = override.value()
    return target if isinstance(target, str) else ""


def is_trainer_on_native(parts: Sorted, base: DictConfig) -> bool:
    """Whether there is a Trainer, and no engine that anybody chose."""
    if parts.recipe is None or "engine" in parts.choices:
        return False
    if any(override.key_or_group.startswith("engine") for override in parts.values):
        return False
    engine = OmegaConf.select(base, "engine.name", throw_on_missing=False)
    return bool(trainer_target(base, parts.values)) and engine == "native"


def with_engine(parts: Sorted) -> Sorted:
    """``parts`` with the engine of a Trainer chosen."""
    engine = OverridesParser.create().parse_override(_ENGINE)
    return dataclasses.replace(parts, choices={**parts.choices, "engine": engine})


def chosen_options(choices: Sequence[str]) -> Mapping[str, str]:
    """The option of each group, whoever chose it: the command line, the recipe, pilot."""
    cfg = hydra_compose("config", list(choices), return_hydra_config=True)
    return {str(group): str(option) for group, option in cfg.hydra.runtime.choices.items()}
