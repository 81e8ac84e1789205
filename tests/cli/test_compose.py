"""Composing: what is right comes out as it should, what is wrong is all named at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilot.cli.compose import Composed, compose
from pilot.errors import ConfigError, FolderError, Mistake

MODULE = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Lora:
    rank: int = 8
    target: tuple[str, ...] = ()

@dataclass
class Settings:
    width: int = 4
    noise: float = 0.0
    lora: Lora | None = None

def check_settings(settings):
    width = settings.get("width", 4)
    return [("width", width, "must be >= 1", "raise it")] if width < 1 else []
"""
RECIPE = """# @package _global_
defaults:
  - override /optim: sgd
recipe: {name: mine, module: mine, width: 4}
full_run: {schedule_steps: 50}
"""


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A directory of a user with a recipe of their own."""
    (tmp_path / "conf" / "recipe").mkdir(parents=True)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "conf" / "recipe" / "mine.yaml").write_text(RECIPE)
    (tmp_path / "recipes" / "mine.py").write_text(MODULE)
    return tmp_path


def _mistakes(start: Path, *given: str) -> dict[str, Mistake]:
    with pytest.raises(ConfigError) as caught:
        compose(given, start)
    return {mistake.key: mistake for mistake in caught.value.mistakes}


def _tree(start: Path, *given: str) -> Composed:
    return compose(["+recipe=mine", *given], start)


def test_overrides_reach_the_tree(user: Path) -> None:
    composed = _tree(
        user,
        "optim.learning_rate=0.5",
        "optim.max_grad_norm=null",
        "recipe.noise=0.25",
        "gates.waive.memory='a larger card'",
        "batch={micro_batch_size: 2}",
    )
    tree = composed.tree
    assert tree["optim"]["_target_"] == "torch.optim.SGD"
    assert tree["optim"]["learning_rate"] == 0.5
    assert tree["optim"]["max_grad_norm"] is None
    assert tree["recipe"] == {"name": "mine", "module": "mine", "width": 4, "noise": 0.25}
    assert tree["gates"]["waive"] == {"memory": "a larger card"}
    assert (tree["batch"]["micro_batch_size"], tree["batch"]["grad_accum_steps"]) == (2, 1)
    assert tree["out_dir"].startswith("outputs/mine/2")
    assert composed.module_path == (user / "recipes" / "mine.py").resolve()
    assert composed.notes == ()
    assert "++recipe.noise=0.25" in composed.overrides
    assert composed.words[:2] == ("+recipe=mine", "optim.learning_rate=0.5")
    assert len(composed.words) == 6


def test_one_beta_is_one_variable(user: Path) -> None:
    tree = _tree(user, "optim=adamw", "optim.beta2=0.95").tree
    assert tree["optim"]["betas"] == [0.9, 0.95]


def test_another_optimizer_without_its_own_rate_gets_a_note(user: Path) -> None:
    (note,) = _tree(user, "optim=adamw").notes
    assert "chosen for SGD; this run uses AdamW" in note
    assert _tree(user, "optim=adamw", "optim.learning_rate=1e-3").notes == ()
    (note,) = _tree(user, "optim=adamw", "optim._target_=torch.optim.RAdam").notes
    assert "this run uses RAdam" in note


def test_any_torch_optimizer_and_its_arguments(user: Path) -> None:
    composed = _tree(
        user, "optim=adamw", "optim._target_=torch.optim.NAdam", "+optim.foreach=false"
    )
    assert composed.tree["optim"]["foreach"] is False
    wrong = _mistakes(user, "+recipe=mine", "optim._target_=torch.optim.AdamWW")
    assert "did you mean 'torch.optim.AdamW'" in wrong["optim._target_"].remedy
    wrong = _mistakes(user, "+recipe=mine", "+optim.amsgrad=true")
    assert wrong["optim.amsgrad"].rule == "torch.optim.SGD takes no argument 'amsgrad'"


def test_all_mistakes_are_reported_at_once(user: Path) -> None:
    wrong = _mistakes(
        user,
        "+recipe=mine",
        "optim=sdg",
        "optim.learning_rate=abc",
        "optim.learning_rte=1",
        "batch.micro_batch=4",
        "batch.grad_accum_steps=1.5",
        "pilot.seed=-1",
        "+pilot.sed=1",
        "precision=fp8",
        "pilot.data_seed=1,2",
        "a b=c",
        "~checks",
        "hydra.run.dir=x",
        "recipe.widht=3",
        "recipe.noise=loud",
        "recipe.lora={rank: 1.5, rnk: 2}",
    )
    assert set(wrong) == {
        "optim",
        "optim.learning_rate",
        "optim.learning_rte",
        "batch.micro_batch",
        "batch.grad_accum_steps",
        "pilot.seed",
        "pilot.sed",
        "precision",
        "pilot.data_seed",
        "a b=c",
        "checks",
        "hydra.run.dir",
        "recipe.widht",
        "recipe.noise",
        "recipe.lora.rank",
        "recipe.lora.rnk",
    }
    assert wrong["optim"].remedy == (
        "did you mean 'sgd'? write optim=NAME, one of: adafactor, adamw, own, sgd"
    )
    assert wrong["optim.learning_rte"].remedy.startswith("did you mean 'optim.learning_rate'?")
    assert wrong["batch.micro_batch"].remedy == "did you mean 'batch.micro_batch_size'?"
    assert wrong["recipe.widht"].remedy.startswith("did you mean 'recipe.width'?")
    assert wrong["precision"].value == "'fp8'"
    assert "'fp16'" in wrong["precision"].rule


def test_a_bound_of_the_recipe_itself(user: Path) -> None:
    wrong = _mistakes(user, "+recipe=mine", "recipe.width=0")
    assert wrong["recipe.width"] == Mistake(
        key="recipe.width", value="0", rule="must be >= 1", remedy="raise it"
    )


@pytest.mark.parametrize(
    ("given", "rule", "remedy"),
    [
        ([], "a recipe must be chosen", "llama_ft"),
        (["recipe=mine"], "a recipe is added with a plus", "write +recipe=mine"),
        (["+recipe=mien"], "no such recipe", "did you mean 'mine'?"),
        (["+recipe=mine", "+recipe=mine"], "is chosen twice", "keep one"),
    ],
)
def test_a_recipe_that_is_not_chosen_right(
    given: list[str], rule: str, remedy: str, user: Path
) -> None:
    wrong = _mistakes(user, *given)
    assert wrong["recipe"].rule == rule
    assert remedy in wrong["recipe"].remedy


def test_values_are_checked_without_a_recipe_too(user: Path) -> None:
    wrong = _mistakes(user, "batch.micro_batch_size=0", "pilot.seeed=1", "recipe.x=1", "optim=sgd")
    assert set(wrong) == {"recipe", "batch.micro_batch_size", "pilot.seeed"}


@pytest.mark.parametrize(
    ("given", "key", "rule"),
    [
        ("+optim=adamw", "optim", "has a choice already"),
        ("optim@x=sgd", "optim@x", "groups have one place"),
        ("+optim.momentum=0.5", "optim.momentum", "exists already"),
        ("optim.momentum.x=1", "optim.momentum.x", "no such key"),
        ("out_dir=${nope}", "out_dir", "must resolve: Interpolation key 'nope' not found"),
        ("recipe.module=nope", "recipe.module", "must name a recipe's Python file"),
        ("recipe.name=a/b", "recipe.name", "names a folder"),
        ("+recipe.objective=x", "recipe.objective", "must be known"),
        ("full_run.epochs=1", "full_run.schedule_steps", "exactly one of the two"),
        ("gates.waive.memry=x", "gates.waive.memry", "no such gate"),
    ],
)
def test_single_mistakes(given: str, key: str, rule: str, user: Path) -> None:
    wrong = _mistakes(user, "+recipe=mine", given)
    assert list(wrong) == [key]
    assert wrong[key].rule.startswith(rule)


@pytest.mark.parametrize(
    ("module", "rule"),
    [
        ("def (", "SyntaxError"),
        ("import nothing_like_this\nclass Settings: pass", "ModuleNotFoundError"),
        ("raise SystemExit(7)\ndef check_settings(s): ...", "SystemExit"),
        ("def check_settings(s): return 1 / 0", "ZeroDivisionError"),
        ("def check_settings(s): return ['width']", "ValueError"),
    ],
)
def test_a_recipe_that_cannot_be_imported_is_named(module: str, rule: str, user: Path) -> None:
    (user / "recipes" / "mine.py").write_text(module)
    wrong = _mistakes(user, "+recipe=mine")
    assert list(wrong) == ["recipe.module"]
    assert rule in wrong["recipe.module"].rule


def test_a_module_without_settings_is_not_imported(user: Path) -> None:
    (user / "recipes" / "mine.py").write_text("raise RuntimeError('imported')")
    assert _tree(user, "+recipe.anything=1").tree["recipe"]["anything"] == 1


def test_a_broken_recipe_file_is_named(user: Path) -> None:
    path = user / "conf" / "recipe" / "mine.yaml"
    path.write_text("# @package _global_\nrecipe: {name: [}\n")
    assert "must compose" in _mistakes(user, "+recipe=mine")["conf"].rule
    path.write_text("# @package _global_\nrecipe:\n  name: mine\n  module: mine\n  width: ???\n")
    wrong = _mistakes(user, "+recipe=mine", "full_run.schedule_steps=5")
    assert wrong["recipe.width"].rule == "must be given"


def test_the_users_recipe_wins_and_foreign_groups_do_not(user: Path) -> None:
    ours = user / "conf"
    (ours / "recipe" / "sine_mlp.yaml").write_text(RECIPE.replace("name: mine", "name: own_sine"))
    (ours / "config.yaml").write_text("foreign: 1\n")
    (ours / "optim").mkdir()
    (ours / "optim" / "sgd.yaml").write_text("lr: 1\n")
    (ours / "optim" / "asgd.yaml").write_text(
        "_target_: torch.optim.ASGD\nlearning_rate: 0.1\nmax_grad_norm: null\n"
    )
    tree = compose(["+recipe=sine_mlp"], user).tree
    assert tree["recipe"]["name"] == "own_sine"
    assert tree["optim"]["learning_rate"] == 0.1
    assert "foreign" not in tree
    assert _tree(user, "optim=asgd").tree["optim"]["_target_"] == "torch.optim.ASGD"


def test_another_folder_with_recipes(user: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    start = tmp_path_factory.mktemp("elsewhere")
    given = ["+recipe=mine", f"recipe.module='{user / 'recipes' / 'mine.py'}'"]
    assert compose(given, start, user / "conf").tree["recipe"]["name"] == "mine"
    with pytest.raises(FolderError, match="is not a folder"):
        compose(given, start, Path("nowhere"))
