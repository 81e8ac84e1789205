"""Every command of the folder's README runs, with the exit code and the output that it shows.

After a wanted change: ``PILOT_WRITE_GOLDEN=1 pytest tests/diagnose/test_readme.py``, then read the
difference.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from pilot.cli.main import main
from pilot.diagnose.plain import KIND_WORDS, STATE_WORDS
from pilot.series.types import KINDS, STATES
from tests.conftest import ROOT
from tests.diagnose.test_contract import EVENT_KEYS, RUN_KEYS

README = ROOT / "pilot" / "diagnose" / "README.md"
PROMISED = re.compile(r"^python -m pilot (?P<words>.+?)\s+# .*?(?P<code>\d)$")
# A command and, in the next block, what it prints.
SHOWN = re.compile(r"```sh\n(?P<line>.*)\n```\n\n```\n(?P<output>(?:.*\n)*?)```\n")


def commands() -> list[tuple[str, int]]:
    found = []
    for block in re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.strip().splitlines():
            match = PROMISED.match(line)
            assert match, f"no exit code is promised: {line}"
            found.append((match["words"], int(match["code"])))
    return found


def test_there_are_commands_with_both_ends() -> None:
    assert len(commands()) >= 5
    assert {code for _, code in commands()} == {0, 3}


@pytest.mark.parametrize(("words", "code"), commands())
def test_every_command_ends_as_promised(
    words: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    given = [tmp_path / w if w.endswith(".png") else w for w in shlex.split(words)]
    assert main([str(word) for word in given]) == code


def test_the_output_shown_is_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    text = README.read_text(encoding="utf-8")
    shown = list(SHOWN.finditer(text))
    assert len(shown) == 2
    for match in shown:
        promised = PROMISED.match(match["line"])
        assert promised is not None
        main(shlex.split(promised["words"]))
        printed = capsys.readouterr().out
        if os.environ.get("PILOT_WRITE_GOLDEN"):
            new = match[0].replace(f"```\n{match['output']}```", f"```\n{printed}```")
            text = text.replace(match[0], new)
        else:
            assert match["output"] == printed
    README.write_text(text, encoding="utf-8") if os.environ.get("PILOT_WRITE_GOLDEN") else None


def test_the_example_of_the_contract_has_its_keys() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (run,) = json.loads(block)["runs"]
    assert list(run) == RUN_KEYS
    assert list(run["events"][0]) == EVENT_KEYS


def test_every_state_is_explained_and_every_kind_has_words() -> None:
    text = README.read_text(encoding="utf-8")
    for state in STATES:
        assert f"| `{state}` |" in text, state
    assert set(STATE_WORDS) == set(STATES)
    assert set(KIND_WORDS) == set(KINDS)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
