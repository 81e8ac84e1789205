"""The example in recipes/README.md: 40 lines, and a whole pilot of them."""

from __future__ import annotations

import re
from pathlib import Path

import torch
import yaml

from pilot.cli.settings import check_recipe
from pilot.config import Config
from pilot.data.audit import audit_rows
from pilot.engines.native_workload import NativeWorkload
from pilot.recipe import RecipeHandle, find_module
from pilot.view import load
from tests.cli.userdir import verdict
from tests.conftest import RunPilot
from tests.trees import config_tree

README = Path(__file__).resolve().parents[2] / "recipes" / "README.md"
MAX_LINES = 40


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    return str(found)


def make_dir(root: Path) -> Path:
    """The two files where a user puts them, and a text to learn."""
    (root / "recipes").mkdir(parents=True)
    (root / "conf" / "recipe").mkdir(parents=True)
    (root / "recipes" / "mine.py").write_text(block("python"), encoding="utf-8")
    (root / "conf" / "recipe" / "mine.yaml").write_text(block("yaml"), encoding="utf-8")
    lines = [f"line {i} " + "abc" * (i % 7) for i in range(400)]
    (root / "my.txt").write_text("\n".join(lines), encoding="utf-8")
    return root


def test_the_example_is_short_and_whole() -> None:
    assert len(block("python").splitlines()) <= MAX_LINES


def test_the_example_is_what_it_says(tmp_path: Path) -> None:
    root = make_dir(tmp_path)
    tree = yaml.safe_load(block("yaml"))
    module = find_module(tree["recipe"]["module"], root)
    assert module == root / "recipes" / "mine.py"
    assert check_recipe(tree["recipe"], module) == []
    settings = {**tree["recipe"], "data": str(root / "my.txt")}
    recipe = RecipeHandle(module_path=module, settings=settings, sequence_length=16, seed=0).build()
    assert (len(recipe.train), len(recipe.validation)) == (360, 40)
    audit = audit_rows("train", recipe.train, vocab_size=256, max_positions=16)
    assert audit["num_rows_checked"] == 360 and audit["num_too_long"] == 0
    workload = NativeWorkload(recipe, Config.model_validate(config_tree()), module)
    workload.require_contract()
    facts = workload.facts()
    assert {f.source for f in facts} == {"text"} and max(f.num_tokens for f in facts) == 16
    model = workload.recipe.build_model("full")
    total, count = workload.recipe.loss(model, recipe.collate(recipe.train[:4]))
    assert torch.isfinite(total)
    assert int(count) == sum(f.num_supervised_tokens for f in facts[:4])


def test_the_example_as_a_whole_pilot(tmp_path: Path, run_pilot: RunPilot) -> None:
    """The user's two files in the user's directory, nothing installed: GO, and real numbers."""
    root = make_dir(tmp_path / "u")
    done = run_pilot(
        *("+recipe=mine", "arms=reference", "tracking=none", "out_dir=out", "recipe.width=16"),
        *("optim.learning_rate=0.01", "full_run.epochs=8.0", "full_run.warmup_steps=5"),
        *("pilot.min_peak_steps=24", "pilot.cooldown_steps=6"),
        cwd=root,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    view = load(root / "out")
    assert view.baseline is not None and verdict(root / "out")["verdict"] == "GO"
    assert view.survey["num_train_rows"] == 360 and view.rows.source_names == ("text",)
    assert view.baseline.steps[-1].loss < 0.8 * view.baseline.steps[0].loss
    step = view.baseline.steps[0]
    assert step.num_supervised_tokens == step.num_tokens - len(step.row_ids)
