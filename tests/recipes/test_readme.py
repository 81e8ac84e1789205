"""The example in recipes/README.md is a recipe that works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import yaml

from pilot.cli.settings import check_recipe
from pilot.data.audit import audit_rows
from pilot.recipe import RecipeHandle, find_module

README = Path(__file__).resolve().parents[2] / "recipes" / "README.md"


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    return str(found)


def test_the_example_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.py").write_text(block("python"), encoding="utf-8")
    lines = [f"line {i} " + "abc" * (i % 7) for i in range(60)]
    (tmp_path / "my.txt").write_text("\n".join(lines), encoding="utf-8")
    tree = yaml.safe_load(block("yaml"))
    module = find_module(tree["recipe"]["module"], tmp_path)
    assert module == tmp_path / "recipes" / "mine.py"
    assert check_recipe(tree["recipe"], module) == []
    recipe = RecipeHandle(
        module_path=module, settings=tree["recipe"], sequence_length=16, seed=0
    ).build()
    assert (len(recipe.train), len(recipe.validation["validation"])) == (54, 6)
    assert audit_rows("train", recipe.train, vocab_size=256, max_positions=16)["num_too_long"] == 0
    batch = recipe.collate(recipe.train[:4])
    assert recipe.num_supervised(batch).tolist() == [
        recipe.facts(row).num_supervised_tokens for row in recipe.train[:4]
    ]
    for scale in ("full", "mini"):
        model = recipe.build_model(scale)
        losses = recipe.losses(model, batch)
        assert losses.shape == (4,)
        assert torch.isfinite(losses).all()
        alone = recipe.losses(model, recipe.collate(recipe.train[:1]))
        assert alone.item() == pytest.approx(losses[0].item(), rel=1e-5)
