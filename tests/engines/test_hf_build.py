"""Building the user's Trainer: what is wrong is named, what is changed is little."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pilot.engines.hf.build import build_trainer, require_transformers
from pilot.errors import ConfigError, MissingExtra

SCRIPT = """
from pathlib import Path
from tests.engines.trainers import make_trainer

HERE = Path(__file__).parent

def build_trainer():
    trainer = make_trainer(
        HERE / "their_output", save_strategy="steps", eval_strategy="steps", eval_steps=5,
        load_best_model_at_end=True, save_steps=5, gradient_accumulation_steps=2,
    )
    return trainer

def nothing():
    return 3

number = 4
"""


def built(tmp_path: Path, target: str, **changes: Any) -> Any:
    (tmp_path / "script.py").write_text(SCRIPT)
    return build_trainer(target, tmp_path, tmp_path / "scratch", changes)


@pytest.mark.parametrize("target", ["script.py:build_trainer", "script.py", "script:build_trainer"])
def test_the_user_output_folder_is_not_made(tmp_path: Path, target: str) -> None:
    sys.modules.pop("script", None)
    found = built(tmp_path, target)
    assert not (tmp_path / "their_output").exists()
    args = found.trainer.args
    assert args.output_dir == str(tmp_path / "scratch")
    assert found.own["output_dir"] == str(tmp_path / "their_output")
    assert args.save_strategy == "no" and args.eval_strategy == "no"
    assert not args.load_best_model_at_end
    assert args.max_steps == 60 and args.gradient_accumulation_steps == 2


def test_one_argument_is_set_where_it_is_made(tmp_path: Path) -> None:
    found = built(tmp_path, "script.py", learning_rate=1e-3, seed=11)
    assert found.trainer.args.learning_rate == 1e-3 and found.own["learning_rate"] == 1e-2
    assert found.trainer.args.seed == 11 and found.own["seed"] == 7
    assert found.trainer.args.data_seed == 7  # the order of the rows stays


def test_the_arguments_class_is_put_back(tmp_path: Path) -> None:
    from transformers import TrainingArguments

    before = TrainingArguments.__post_init__
    built(tmp_path, "script.py")
    assert TrainingArguments.__post_init__ is before


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("gone.py:build_trainer", "there is no file"),
        ("script.py:build_trainr", "did you mean script.py:build_trainer"),
        ("script.py:nothing", "it returned int"),
        ("script.py:number", "no callable"),
        ("no_such_module_x:build", "there is no module"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, target: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        built(tmp_path, target)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(MissingExtra, match=r"pilot-run\[transformers\]"):
        require_transformers()


def test_a_module_is_found_without_importing_it(tmp_path: Path) -> None:
    """Finding the file of ``package.module:callable`` must not run the user's code."""
    from pilot.recipe import find_recipe_file

    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "mypkg" / "train.py").write_text("")
    for target, name in (("mypkg.train:build", "train.py"), ("mypkg:build", "__init__.py")):
        found = find_recipe_file({"trainer": target}, tmp_path)
        assert found == (tmp_path / "mypkg" / name).resolve()
    found = find_recipe_file({"trainer": "transformers.trainer:Trainer"}, tmp_path)
    assert found.name == "trainer.py" and "mypkg" not in sys.modules
