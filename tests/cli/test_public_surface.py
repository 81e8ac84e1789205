"""Freezes what users rely on: keys with their defaults, exit codes, words.

After a wanted change: ``PILOT_WRITE_GOLDEN=1 pytest tests/cli/test_public_surface.py``, then
read the difference.
"""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from pilot import config as schema
from pilot.arms.settings import Arms
from pilot.cli.search import hydra_session, use_user_dirs
from pilot.cli.settings import COMMON
from pilot.cli.words import WORDS
from pilot.config import conf_dir
from pilot.errors import ExitCode
from pilot.gates import Gates, Section
from pilot.mistakes import flat_keys
from pilot.recipe import find_module, load_module

GOLDEN = Path(__file__).parent / "public_keys.txt"
RECIPES = ("llama_ft", "sine_mlp")


def _composed(recipe: str | None, *more: str) -> dict[str, Any]:
    from hydra import compose

    use_user_dirs(Path(__file__).parent, None)
    with hydra_session():
        given = [f"+recipe={recipe}"] if recipe else []
        tree = OmegaConf.to_container(compose("config", [*given, *more]))
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


def _value(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree[part]
    return tree


def _surface() -> str:
    lines = []
    for recipe in RECIPES:
        tree = _composed(recipe)
        lines.append(f"+recipe={recipe}")
        lines += [f"  {key} = {_value(tree, key)!r}" for key in sorted(flat_keys(tree))]
    lines += [f"exit {code.name} = {code.value}" for code in ExitCode]
    lines += [f"word {name}" for name, word in WORDS.items() if not word.internal]
    return "\n".join(lines) + "\n"


def test_the_public_surface_is_as_frozen() -> None:
    if os.environ.get("PILOT_WRITE_GOLDEN"):
        GOLDEN.write_text(_surface(), encoding="utf-8")
    assert _surface() == GOLDEN.read_text(encoding="utf-8")


def test_exit_codes() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "GO": 0,
        "CRASH": 1,
        "USAGE": 2,
        "NO_GO": 3,
        "INCONCLUSIVE": 4,
    }


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_key_of_the_schema_is_in_conf_and_the_reverse(recipe: str) -> None:
    tree = _composed(recipe)
    assert set(tree) == set(schema.Config.model_fields)
    for name, field in schema.Config.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section) and name != "optim":
            assert set(tree[name]) == set(section.model_fields), name


@pytest.mark.parametrize("recipe", RECIPES)
def test_defaults_in_conf_are_those_of_the_schema(recipe: str) -> None:
    tree = _composed("sine_mlp" if recipe == "llama_ft" else "llama_ft")
    gates = Gates.model_validate(tree["gates"])
    for name in ("finite", "early_damage", "movement", "validation", "progress", "memory"):
        assert getattr(gates, name) == type(getattr(gates, name))(), name
    assert schema.PilotConfig.model_validate(tree["pilot"]) == schema.PilotConfig()
    assert schema.Launcher.model_validate(tree["launcher"]) == schema.Launcher()
    arms = Arms.model_validate({**tree["arms"], "noise_dir": None})  # a folder of the checkout
    assert arms == Arms()
    assert tree["arms"]["noise_dir"] == "outputs/noise"


@pytest.mark.parametrize("option", ["default", "reference", "star"])
def test_every_option_of_arms_has_every_key(option: str) -> None:
    assert sorted(path.stem for path in (conf_dir() / "arms").glob("*.yaml")) == [
        "default",
        "reference",
        "star",
    ]
    tree = _composed("llama_ft", f"arms={option}")
    assert set(tree["arms"]) == set(Arms.model_fields)
    arms = Arms.model_validate(tree["arms"])
    assert arms.learning_rate_scales == (["1/10", "1/3", "3"] if option == "default" else ["1/3"])
    assert arms.max_grad_norm == (1.0 if option == "default" else None)
    assert arms.num_replicas == (0 if option == "reference" else 2)
    assert arms.add == []


def _readme() -> dict[str, str]:
    text = (conf_dir() / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \|", text, flags=re.MULTILINE)
    return {key: default.strip() for key, default in rows}


def test_the_readme_lists_every_key_and_no_other() -> None:
    known: set[str] = set()
    for recipe in RECIPES:
        for optim in ("adamw", "sgd", "adafactor"):
            known |= set(flat_keys(_composed(recipe, f"optim={optim}")))
    assert set(_readme()) == known


def test_the_readme_has_the_right_defaults() -> None:
    trees = [_composed(None), *(_composed(None, f"optim={name}") for name in ("sgd", "adafactor"))]
    trees += [_composed(recipe) for recipe in RECIPES]
    in_words = {"optim.betas", "out_dir", "recipe.name", "recipe.module", "recipe.objective"}
    for key, text in _readme().items():
        if key in in_words:
            continue
        tree = next(tree for tree in trees if key in flat_keys(tree))
        written = float(text) if re.fullmatch(r"[\d.]+e-\d+", text) else yaml.safe_load(text)
        assert written == _value(tree, key), key


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipes_file_and_its_module_agree(recipe: str) -> None:
    settings = load_module(find_module(recipe, Path(__file__).parent)).Settings()
    section = _composed(recipe)["recipe"]
    own = {key: value for key, value in section.items() if key not in COMMON}
    assert own == {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}


def test_every_file_of_conf_explains_each_of_its_keys() -> None:
    for path in sorted(conf_dir().rglob("*.yaml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert yaml.safe_load("\n".join(lines)) is not None
        assert sum("#" in line for line in lines) >= 1, path
        if path.parent.name == "recipe":
            assert lines[0] == "# @package _global_", path
