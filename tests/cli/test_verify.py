"""``verify``: 0 only for a GO that was made for exactly the run given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pilot.cli.compose import compose
from pilot.cli.verify import verify_run
from pilot.errors import ConfigError, ExitCode, FolderError
from pilot.fingerprint import make_fingerprint
from pilot.folder import read_json
from pilot.jsonl import write_json

MINE = """# @package _global_
recipe: {name: mine, module: mine, data: rows.txt}
full_run: {schedule_steps: 50}
"""
MODULE = """from pathlib import Path

def input_files(settings):
    return [Path(settings["data"])]
"""


@pytest.fixture
def pilot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a recipe, and in it the folder of its pilot."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "recipe").mkdir(parents=True)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "conf" / "recipe" / "mine.yaml").write_text(MINE)
    (tmp_path / "recipes" / "mine.py").write_text(MODULE)
    (tmp_path / "rows.txt").write_text("one\n")
    composed = compose(["+recipe=mine"], tmp_path)
    made = make_fingerprint(composed.tree, composed.module_path, [Path("rows.txt")], world_size=1)
    (tmp_path / "out").mkdir()
    write_json(tmp_path / "out" / "fingerprint.json", made)
    _verdict(tmp_path / "out", "GO")
    return tmp_path / "out"


def _verdict(root: Path, word: str, **more: Any) -> None:
    made = read_json(root / "fingerprint.json")
    write_json(root / "verdict.json", {"verdict": word, "fingerprint": made, **more})


@pytest.mark.parametrize(
    ("word", "code"),
    [("GO", 0), ("NO-GO", 3), ("INCONCLUSIVE", 4), ("go", 4), ("", 4)],
)
def test_the_word_decides_when_nothing_differs(
    word: str, code: int, pilot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _verdict(pilot, word)
    assert verify_run(pilot, ["+recipe=mine"], None) == ExitCode(code)
    assert "it was made for exactly this run" in capsys.readouterr().out


def test_what_differs_is_listed_and_is_no_go_ahead(
    pilot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pilot.parent / "rows.txt").write_text("two, longer\n")
    given = ["+recipe=mine", "optim.learning_rate=0.5", "pilot.budget_steps=500", "out_dir=else"]
    assert verify_run(pilot, given, None) is ExitCode.INCONCLUSIVE
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        f"verdict in {pilot}: GO",
        "it was made for another run; what differs: 2",
    ]
    assert lines[2] == "  config optim.learning_rate: 0.001 -> 0.5"
    assert lines[3].startswith("  data rows.txt: 4 bytes (sha256 ")
    _verdict(pilot, "NO-GO")
    assert verify_run(pilot, given, None) is ExitCode.NO_GO


@pytest.mark.parametrize(
    "more",
    [
        ["arms=reference"],
        ["arms=star", "arms.num_replicas=0", "arms.budget_steps=500", "launcher.max_parallel=3"],
        ["arms.add=[{optim.learning_rate: 0.5}]"],
    ],
)
def test_the_arms_do_not_bind_the_verdict(more: list[str], pilot: Path) -> None:
    assert verify_run(pilot, ["+recipe=mine", *more], None) is ExitCode.GO


def test_a_verdict_without_a_fingerprint_is_no_go_ahead(pilot: Path) -> None:
    _verdict(pilot, "GO", fingerprint=None)
    assert verify_run(pilot, ["+recipe=mine"], None) is ExitCode.INCONCLUSIVE


def test_a_verdict_of_another_fingerprint_is_no_go_ahead(pilot: Path) -> None:
    _verdict(pilot, "GO", fingerprint={"hash": "000000000000"})
    assert verify_run(pilot, ["+recipe=mine"], None) is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize("name", ["verdict.json", "fingerprint.json"])
def test_without_a_verdict_there_is_nothing_to_verify(name: str, pilot: Path) -> None:
    (pilot / name).unlink()
    with pytest.raises(FolderError, match=f"has no verdict: {name} is missing"):
        verify_run(pilot, ["+recipe=mine"], None)


def test_the_run_given_must_be_valid(pilot: Path) -> None:
    with pytest.raises(ConfigError, match="a recipe must be chosen"):
        verify_run(pilot, ["pilot.seed=1"], None)
