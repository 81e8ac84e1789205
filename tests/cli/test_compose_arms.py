"""Arms from the command line and from conf/arms: tried at compose time, all mistakes at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra import compose as hydra_compose
from omegaconf import OmegaConf

from pilot.arms.one_variable import change_leaf
from pilot.arms.specs import arm_specs
from pilot.cli.compose import Composed, compose
from pilot.cli.search import hydra_session
from pilot.config import validate
from pilot.errors import ConfigError, Mistake

MODULE = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Lora:
    rank: int = 8
    alpha: float = 16.0

@dataclass
class Settings:
    width: int = 4
    noise: float = 0.0
    base: float = 0.1
    lora: Lora | None = None

def check_settings(settings):
    width = settings.get("width", 4)
    return [("width", width, "must be >= 1", "raise it")] if width < 1 else []
"""
RECIPE = """# @package _global_
recipe: {name: mine, module: mine, width: 4, lora: null}
full_run: {schedule_steps: 50}
optim: {learning_rate: 0.1}
"""


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A directory of a user with a recipe of their own, whose module declares its settings."""
    for folder in ("conf/recipe", "conf/arms", "recipes"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "conf" / "recipe" / "mine.yaml").write_text(RECIPE)
    (tmp_path / "recipes" / "mine.py").write_text(MODULE)
    return tmp_path


def _compose(start: Path, *given: str, multirun: bool = False) -> Composed:
    return compose(["+recipe=mine", *given], start, multirun=multirun)


def _mistakes(start: Path, *given: str, multirun: bool = False) -> list[Mistake]:
    with pytest.raises(ConfigError) as caught:
        _compose(start, *given, multirun=multirun)
    return list(caught.value.mistakes)


def _one(start: Path, *given: str, multirun: bool = False) -> Mistake:
    (mistake,) = _mistakes(start, *given, multirun=multirun)
    return mistake


def _arms(composed: Composed) -> list[tuple[str, Any]]:
    specs = arm_specs(validate(composed.tree))
    return [(spec.title, spec.value) for spec in specs]


@pytest.mark.parametrize(
    ("given", "titles"),
    [
        ([], ["lr x1/3", "clip off", "lr x1/10", "lr x3", "replica 1", "replica 2"]),
        (["arms=reference"], ["lr x1/3"]),
        (["arms=star"], ["lr x1/3", "replica 1", "replica 2"]),
        (["arms=star", "arms.learning_rate_scales=[1/2,3]", "arms.num_replicas=0"],
         ["lr x1/2", "lr x3"]),
        (["arms=reference", "arms.add=[{optim.beta2: 0.95}]"], ["lr x1/3", "beta2 0.95"]),
        (["arms=reference", "arms.add=[{optim: {beta2: 0.95}}]"], ["lr x1/3", "beta2 0.95"]),
    ],
)  # fmt: skip
def test_the_options_of_the_group(given: list[str], titles: list[str], user: Path) -> None:
    assert [title for title, _ in _arms(_compose(user, *given))] == titles


def test_an_added_arm_survives_composing_and_changes_one_leaf(user: Path) -> None:
    composed = _compose(user, "arms.add=[{optim.beta2: 0.95}, {recipe.width: 8}]")
    assert composed.tree["arms"]["add"] == [{"optim.beta2": 0.95}, {"recipe.width": 8}]
    with hydra_session():
        cfg = hydra_compose("config", list(composed.overrides))
    text = OmegaConf.to_yaml(cfg)
    again: Any = OmegaConf.to_container(OmegaConf.create(text))
    assert again["arms"] == composed.tree["arms"]
    changed = change_leaf(text, "optim.beta2", 0.95, resolved=composed.tree)
    assert changed.follows == {"optim.betas": "[0.9, 0.95]"}
    assert changed.tree["out_dir"] == composed.tree["out_dir"]
    assert validate(changed.tree).optim.model_dump()["betas"] == [0.9, 0.95]


def test_arms_of_the_users_own_file(user: Path) -> None:
    (user / "conf" / "arms" / "mine.yaml").write_text(
        "defaults: [default, _self_]\nlearning_rate_scales: ['1/3', '3']\nnum_replicas: 0\n"
        "add:\n  - optim.beta2: 0.95\n  - optim: {eps: 1e-7}\n  - recipe.noise: 1\n"
    )
    composed = _compose(user, "arms=mine")
    assert _arms(composed) == [
        ("lr x1/3", 0.0333333),
        ("clip off", None),
        ("lr x3", 0.3),
        ("beta2 0.95", 0.95),
        ("eps 1e-07", 1e-7),
        ("noise 1", 1),
    ]
    assert composed.tree["arms"]["error_rate"] == 0.05  # from the default
    with_lists = _compose(user, "arms=mine", "optim.beta1=0.8,0.9", multirun=True)
    assert [title for title, _ in _arms(with_lists)][-2:] == ["noise 1", "beta1 0.8"]


def test_lists_become_a_star_around_the_recipe_as_it_stands(user: Path) -> None:
    composed = _compose(
        user,
        "optim.learning_rate=1e-5,0.1,3e-5",
        "optim.max_grad_norm=null,1.0",
        "optim.beta1=0.8",
        "+optim.amsgrad=false,true",
        "recipe.noise=range(1,3)",
        multirun=True,
    )
    assert _arms(composed) == [
        ("lr x1/3", 0.0333333),
        ("lr 1e-05", 1e-5),
        ("lr 3e-05", 3e-5),
        ("clip off", None),
        ("amsgrad false", False),
        ("amsgrad true", True),
        ("noise 1", 1),
        ("noise 2", 2),
        ("replica 1", 1000),
        ("replica 2", 2000),
    ]
    assert composed.tree["optim"]["learning_rate"] == 0.1
    assert composed.tree["optim"]["max_grad_norm"] == 1.0
    assert composed.words == ("+recipe=mine", "optim.beta1=0.8")
    assert composed.notes == (
        "optim.learning_rate=0.1 is what the recipe has already: no arm",
        "optim.max_grad_norm=1.0 is what the recipe has already: no arm",
    )
    with hydra_session():  # the app composes the same from the overrides alone
        cfg = hydra_compose("config", list(composed.overrides))
    assert OmegaConf.to_container(cfg.arms, resolve=True) == composed.tree["arms"]


def test_lists_are_appended_to_what_is_added(user: Path) -> None:
    given = ["arms.add=[{optim.eps: ${optim.beta1}}]", "arms=reference", "optim.beta2=0.95,0.99"]
    composed = _compose(user, *given, multirun=True)
    assert _arms(composed) == [
        ("lr x1/3", 0.0333333),
        ("eps 0.9", 0.9),
        ("beta2 0.95", 0.95),
        ("beta2 0.99", 0.99),
    ]
    assert composed.words == ("+recipe=mine", *given[:2])


def test_a_value_and_a_list_of_one_key_are_the_recipe_and_its_arms(user: Path) -> None:
    composed = _compose(user, "optim.beta2=0.9", "optim.beta2=0.95,0.99", multirun=True)
    assert composed.tree["optim"]["betas"] == [0.9, 0.9]
    assert composed.words == ("+recipe=mine", "optim.beta2=0.9")


@pytest.mark.parametrize(
    ("change", "rule", "remedy"),
    [
        ("optim.betas: [0.9, 0.95]", "follows optim.beta1, optim.beta2 by int", "change optim.b"),
        ("optim: {beta1: 0.8, beta2: 0.9}", "is a section of 8 keys", "name one: optim._target_"),
        ("optim.bta2: 0.95", "torch.optim.AdamW takes no argument", "did you mean 'optim.beta2'?"),
        ("optim.learning_rate: fast", "must be a valid number", "to a value that fits"),
        ("optim.learning_rate: 0", "must be greater than 0", "to a value that fits"),
        ("optim._target_: torch.optim.Adm", "cannot be imported", "torch.optim.Adam"),
        ("full_run.epochs: 2", "exactly one of the two", "set one of them"),
        ("full_run.warmup_steps: 60", "must be at most full_run.schedule_steps", "shorten"),
        ("full_run.warmup_step: 6", "no such key", "did you mean 'full_run.warmup_steps'?"),
        ("batch.micro_batch_size: 4.5", "must be a valid integer", "to a value that fits"),
        ("recipe.width: 0", "must be >= 1", "raise it"),
        ("recipe.width: wide", "must be a valid integer", "to a value that fits"),
        ("recipe.widht: 3", "no such key", "did you mean 'recipe.width'?"),
        ("+recipe.own: 3", "no such key", ""),
        ("recipe.lora: {rank: 1.5}", "must be a valid integer", "to a value that fits"),
        ("pilot.validation_rows: 8", "cannot be an arm: it defines the pilot", "optim.*"),
        ("out_dir: x", "cannot be an arm: it names the folder", "arms can change recipe.*"),
        ("gates.strict: true", "cannot be an arm: it judges the baseline", "arms can change"),
        ("pilot.data_seed: 5", "order of the rows is shared", "pilot it by itself: pilot.data_s"),
        ("+recipe.shuffle: false", "order of the rows is shared", "pilot it by itself: recipe.sh"),
        ("tracking.uri: 5", "must be a valid string", "to a value that fits"),
    ],
)
def test_a_wrong_arm_is_a_mistake_of_what_asked_for_it(
    change: str, rule: str, remedy: str, user: Path
) -> None:
    mistake = _one(user, f"arms.add=[{{{change}}}]")
    assert mistake.key == "arms.add"
    assert change.split(":")[0].split(".")[-1] in mistake.value
    assert rule in mistake.rule
    assert remedy in mistake.remedy


def test_a_dictionary_in_the_place_of_a_list_names_its_key(user: Path) -> None:
    found = _mistakes(user, "arms.add={optim.beta2: 0.9}", "checks.skip={a: 1}", "pilot.seed=x")
    assert [(m.key, m.value, m.rule) for m in found[:2]] == [
        ("arms.add", "{optim.beta2: 0.9}", "must be a list"),
        ("checks.skip", "{a: 1}", "must be a list"),
    ]
    assert found[0].remedy == "write arms.add=[{optim.beta2: 0.9}]"
    assert [m.key for m in found[2:]] == ["pilot.seed"]
    (user / "conf" / "arms" / "mine.yaml").write_text(
        "defaults: [default, _self_]\nadd: {optim.beta2: 0.9}\n"
    )
    mistake = _one(user, "arms=mine")
    assert mistake.key == "conf" and "In 'arms/mine': " in mistake.rule


def test_null_for_a_new_key_is_an_arm(user: Path) -> None:
    (user / "recipes" / "mine.py").write_text("")  # declares nothing
    composed = _compose(user, "arms.add=[{+recipe.own: null}]")
    assert ("own null", None) in _arms(composed) and composed.notes == ()
    composed = _compose(user, "arms.add=[{recipe.lora: null}]")
    assert composed.notes == ("recipe.lora=null is what the recipe has already: no arm",)


def test_lists_of_seeds_are_replicas(user: Path) -> None:
    composed = _compose(user, "pilot.seed=1000,2000", multirun=True)
    specs = arm_specs(validate(composed.tree))
    assert [(spec.title, spec.role) for spec in specs] == [
        ("lr x1/3", "arm"),
        ("seed 1000", "replica"),
        ("seed 2000", "replica"),
    ]


def test_all_wrong_arms_are_told_together_with_all_else(user: Path) -> None:
    given = [
        "arms.add=[{optim.betas: [1, 2]}, {recipe.width: 8}, {precision: fp8}, {precision: bf16}]",
        "optim.learning_rate=1e-5,fast,slow",
        "gates.strict=false,true",
        "pilot.seed=x",
        "recipe.noise=loud",
        "optim=adamw,sgd",
        "pilot.sed=1,2",
        "batch.micro_batch_size=0,4,16",
    ]
    found = [(m.key, m.value, m.rule) for m in _mistakes(user, *given, multirun=True)]
    follows = "follows optim.beta1, optim.beta2 by interpolation: changing it would hide the link"
    assert [(key, value) for key, value, _ in found] == [
        ("optim", "adamw,sgd"),
        ("pilot.sed", "1,2"),
        ("pilot.seed", "'x'"),
        ("recipe.noise", "'loud'"),
        ("arms.add", "[{optim.betas: [1, 2]}]"),
        ("arms.add", "[{precision: fp8}]"),
        ("optim.learning_rate", "1e-5,fast,slow"),
        ("optim.learning_rate", "1e-5,fast,slow"),
        ("gates.strict", "false,true"),
        ("batch.micro_batch_size", "0,4,16"),
    ]
    rules = [rule for _, _, rule in found]
    assert rules[4] == f"optim.betas = [1, 2]: {follows}"
    assert rules[6] == "optim.learning_rate = 'fast': must be a valid number"
    assert rules[7] == "optim.learning_rate = 'slow': must be a valid number"
    assert rules[9].startswith("batch.micro_batch_size = 0: must be greater than or equal to 1")


def test_a_new_key_of_the_recipe_is_declared_or_has_a_plus(user: Path) -> None:
    assert ("noise 0.5", 0.5) in _arms(_compose(user, "arms.add=[{recipe.noise: 0.5}]"))
    (user / "recipes" / "mine.py").write_text("")  # declares nothing
    mistake = _one(user, "arms.add=[{recipe.noise: 0.5}]")
    assert mistake.rule == "recipe.noise = 0.5: no such key"
    assert mistake.remedy == "a key of its own is written with a plus: +recipe.noise"
    mistake = _one(user, "arms.add=[{recipe: {widht: 5}}]")
    assert mistake.remedy.startswith("did you mean 'recipe.width'?")
    for given, multirun in (
        ("arms.add=[{+recipe.noise: 0.5}]", False),
        ("arms.add=[{recipe: {+noise: 0.5}}]", False),
        ("+recipe.noise=0.5,0.6", True),
    ):
        assert ("noise 0.5", 0.5) in _arms(_compose(user, given, multirun=multirun))


def test_numbers_mean_what_they_mean_on_the_command_line(user: Path) -> None:
    (user / "conf" / "arms" / "mine.yaml").write_text(
        "defaults: [reference, _self_]\n"
        "add: [{optim.learning_rate: 1}, {optim.eps: 1e-6}, {batch.micro_batch_size: 4}]\n"
    )
    composed = _compose(user, "arms=mine")
    assert _arms(composed)[1:] == [("lr 1", 1), ("eps 1e-06", 1e-6), ("micro_batch_size 4", 4)]


def test_a_default_arm_whose_key_follows_another_is_named_once(user: Path) -> None:
    path = user / "conf" / "recipe" / "mine.yaml"
    path.write_text(RECIPE.replace("learning_rate: 0.1", 'learning_rate: "${recipe.base}"'))
    mistake = _one(user, "recipe.base=0.1")
    assert mistake.key == "arms.learning_rate_scales"
    assert "follows recipe.base by interpolation" in mistake.rule
    assert mistake.remedy.startswith("change recipe.base instead; optim.learning_rate follows; or")
    assert mistake.remedy.endswith("or do without: arms.learning_rate_scales=[]")
    given = ["recipe.base=0.1", "arms.learning_rate_scales=[]", "arms.add=[{recipe.base: 0.2}]"]
    assert ("base 0.2", 0.2) in _arms(_compose(user, *given))
    assert ("lr x3", 1.5) in _arms(_compose(user, "recipe.base=0.1", "optim.learning_rate=0.5"))


def test_a_key_without_influence_is_accepted_and_says_so(user: Path) -> None:
    composed = _compose(user, "arms.add=[{tracking.experiment: x}, {recipe.name: other}]")
    assert ("name other", "other") in _arms(composed)
    specs = {spec.variable: spec for spec in arm_specs(validate(composed.tree))}
    assert specs["tracking.experiment"].no_influence.endswith(": identical")
    assert specs["recipe.name"].no_influence == ""


def test_a_recipe_that_is_missing_does_not_hide_wrong_arms(user: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["arms.add=[{batch.micro_batch_size: 0}, {recipe.x: 1}, {out_dir: y}]"], user)
    assert [mistake.key for mistake in caught.value.mistakes] == ["recipe", "arms.add", "arms.add"]


def test_what_hydra_cannot_be_told_is_a_mistake(user: Path) -> None:
    (user / "conf" / "arms" / "mine.yaml").write_text(
        'defaults: [default, _self_]\nadd: [{recipe.lora: {"it\'s": 1}}]\n'
    )
    found = _mistakes(user, "arms=mine", "optim.beta1=0.8,0.7", multirun=True)
    assert found[0].key == "arms.add"
    assert "writable in Hydra's grammar" in found[0].rule
