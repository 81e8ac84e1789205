"""The help, the version, and that they stay light."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pilot
from pilot.cli.help import help_text
from pilot.cli.words import WORDS
from tests.conftest import ROOT, RunPilot

HEAVY = ["torch", "mlflow", "transformers", "tokenizers", "pandas", "matplotlib", "ray"]


def test_help_names_recipes_groups_words_and_exit_codes(run_pilot: RunPilot) -> None:
    done = run_pilot("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    for text in (
        "+recipe=NAME",
        "llama_ft",
        "sine_mlp",
        "optim                adafactor | adamw | own | sgd",
        "arms                 default | reference | star",
        "python -m pilot -m +recipe=NAME KEY=VALUE,VALUE",
        "-m, --multirun         KEY=VALUE,VALUE: every value is an arm",
        "arms=NAME",
        "judge DIR [--gates FILE]",
        "0 GO, 1 pilot crashed, 2 configuration or usage error, 3 NO-GO, 4 INCONCLUSIVE",
    ):
        assert text in done.stdout
    assert "survey DIR" not in done.stdout  # internal


def test_version(run_pilot: RunPilot) -> None:
    done = run_pilot("--version")
    assert (done.returncode, done.stdout) == (0, f"pilot {pilot.__version__}\n")


def test_help_wins_over_a_recipe(run_pilot: RunPilot) -> None:
    done = run_pilot("+recipe=llama_ft", "--help")
    assert done.returncode == 0
    assert "usage: python -m pilot" in done.stdout


@pytest.mark.parametrize("word", sorted(WORDS))
def test_every_word_has_its_own_help(word: str, run_pilot: RunPilot) -> None:
    done = run_pilot(word, "--help")
    assert done.returncode == 0
    assert f"usage: pilot {word}" in done.stdout


@pytest.mark.parametrize("words", [["--help"], ["--version"], []])
def test_nothing_heavy_is_imported_to_parse(words: list[str]) -> None:
    code = (
        "import sys; from pilot.cli.main import main\n"
        f"main({words!r})\n"
        f"print('HEAVY', sorted(set({HEAVY!r}) & set(sys.modules)), 'hydra' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == f"HEAVY [] {words == []}"


def test_composing_a_recipe_imports_no_torch() -> None:
    code = (
        "import sys; from pathlib import Path; from pilot.cli.compose import compose\n"
        "compose(['+recipe=llama_ft', 'optim=sgd'], Path.cwd())\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_help_lists_the_users_recipes_with_their_first_comment(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path)) / "conf" / "recipe"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("# @package _global_\n# What I train.\nrecipe: {}\n")
    (folder / "bare.yaml").write_text("recipe: {}\n")
    lines = help_text(Path(str(tmp_path))).splitlines()
    assert "  mine                 What I train" in lines
    assert "  bare" in lines
