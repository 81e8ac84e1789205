"""The command line of a script that reads one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pilot.engines.hf.argv import argv_mistakes, argv_of
from pilot.engines.hf.build import build_trainer
from tests.conftest import environment


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, ()),
        ([], ()),
        (["--a", 3, 0.5], ("--a", "3", "0.5")),
        ("--name 'two words' --b=1", ("--name", "two words", "--b=1")),
    ],
)
def test_a_list_or_one_text(given: object, words: tuple[str, ...]) -> None:
    assert argv_of({"argv": given}) == words and argv_mistakes({"argv": given}) == []


@pytest.mark.parametrize("given", ["--a 'open", 3, True, {"a": 1}, [["--a"]], ["--a", True]])
def test_what_is_no_command_line(given: object) -> None:
    (mistake,) = argv_mistakes({"argv": given})
    assert mistake.key == "recipe.argv" and "recipe.argv='[" in str(mistake.remedy)


def test_the_script_sees_its_own_name_and_words(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import sys\nfrom tests.engines.trainers import make_trainer\nSEEN = list(sys.argv)\n"
        "def build_trainer():\n    trainer = make_trainer('theirs')\n"
        "    trainer.seen = (SEEN, list(sys.argv))\n    return trainer\n"
    )
    before = list(sys.argv)
    made = build_trainer("script.py", tmp_path, tmp_path / "s", {}, argv=("--a", "1"))
    assert made.trainer.seen == (["script.py", "--a", "1"],) * 2 and sys.argv == before


def test_a_script_has_the_same_module_name_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("")
    code = "from pathlib import Path\nfrom pilot.recipe import load_module\n"
    code += "print(load_module(Path('script.py')).__name__)"
    root = str(Path(__file__).parents[2])
    names = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**environment(), "PYTHONPATH": root, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(names) == 1 and "script" in names.pop()
