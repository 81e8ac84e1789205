"""Asking a Trainer: what it answers, and what is said when it cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pilot.engines.hf.ask import run_ask
from pilot.folder import read_json
from pilot.jsonl import write_json

HEAD = """
from pathlib import Path
from tests.engines.trainers import make_trainer
THEIRS = Path(__file__).parent / "their_output"
"""
Ask = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Ask what ``code`` builds; returns the exit code, and the answer or the error."""
    monkeypatch.chdir(tmp_path)

    def run(
        code: str, target: str = "script.py:build_trainer", **arguments: Any
    ) -> tuple[int, dict[str, Any]]:
        (tmp_path / "script.py").write_text(HEAD + code)
        root = tmp_path / "asked"
        root.mkdir()
        write_json(root / "request.json", {"target": target, "seed": 0, "arguments": arguments})
        rc = run_ask(root)
        left = root / ("error.json" if rc else "answer.json")
        return rc, dict(read_json(left))

    return run


def test_the_answer(ask: Ask, tmp_path: Path) -> None:
    code = """
print('{"noise": ')
def build_trainer():
    return make_trainer(THEIRS, gradient_accumulation_steps=2, bf16=True, data_seed=3)
"""
    rc, answer = ask(code, adam_beta2=0.9)
    assert rc == 0 and not (tmp_path / "their_output").exists()
    tree, engine = answer["tree"], answer["engine"]
    assert tree["objective"] == "lm" and tree["precision"] == "bf16"
    assert tree["full_run"] == {
        "schedule_steps": 60,
        "warmup_steps": 3,
        "schedule": "cosine",
        "min_learning_rate_frac": 0.0,
        "decay_frac": 0.1,
    }
    assert tree["optim"]["beta2"] == 0.9  # the recipe's own argument is part of the run
    assert tree["batch"] == {"micro_batch_size": 4, "grad_accum_steps": 2}
    assert tree["pilot"] == {"seed": 7, "data_seed": 3}
    assert (engine["kind"], engine["steps_per_epoch"], engine["steps"]) == ("Trainer", 4, 60)
    assert answer["arguments"]["adam_beta2"]["own"] == 0.999
    assert answer["arguments"]["output_dir"]["own"].endswith("their_output")


def test_a_seed_that_is_set_after_the_trainer_decides_the_order(ask: Ask) -> None:
    code = """
def build_trainer():
    from transformers import set_seed
    trainer = make_trainer(THEIRS)
    set_seed(99)
    return trainer
"""
    assert ask(code)[1]["tree"]["pilot"] == {"seed": 7, "data_seed": 99}


RAISES = """
def load(path):
    raise FileNotFoundError(f"no {path}; password=hunter2")

def build_trainer():
    return load("rows.jsonl")
"""


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        (RAISES, ["FileNotFoundError: no rows.jsonl", 'load("rows.jsonl")', "line 7"]),
        ("import not_there_x\n", ["ModuleNotFoundError", "not_there_x", "import not_there_x"]),
        ("def build_trainer(:\n", ["SyntaxError", "script.py"]),
        (
            "def build_trainer():\n    raise SystemExit(3)\n",
            ["ends the process (3)", "recipe.argv"],
        ),
        ("def build_trainer():\n    assert False\n", ["AssertionError"]),
        ("def build_trainer():\n    return make_trainer(THEIRS, train=[])\n", ["is empty"]),
        (
            "def build_trainer():\n    t = make_trainer(THEIRS)\n    t.train_dataset = None\n"
            "    return t\n",
            ["has no train_dataset"],
        ),
        (
            "def build_trainer():\n    return make_trainer(THEIRS, dataloader_drop_last=True, "
            "per_device_train_batch_size=64)\n",
            ["draws no batch"],
        ),
    ],
    ids=["raises", "import", "syntax", "exit", "assert", "empty", "none", "dropped"],
)
def test_what_cannot_be_asked(ask: Ask, code: str, parts: list[str]) -> None:
    rc, error = ask(code)
    assert rc == 2 and error["exit_code"] == 2
    for part in parts:
        assert part in error["message"], error["message"]
    assert "hunter2" not in error["message"] and "pilot/engines" not in error["message"]


def test_a_trainer_by_epochs_keeps_its_unit(ask: Ask) -> None:
    code = """
def build_trainer():
    return make_trainer(THEIRS, max_steps=-1, num_train_epochs=3, warmup_steps=0.1)
"""
    run = ask(code)[1]["tree"]["full_run"]
    assert run["epochs"] == 3.0 and "schedule_steps" not in run
    assert run["warmup_frac"] == 0.1 and "warmup_steps" not in run
