"""Every command of the README is run, and ends with the exit code that it promises."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pilot.cli.words import WORDS
from tests.conftest import ROOT, RunPilot

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROMISED = re.compile(r"^python -m pilot (?P<words>.+?)\s+# .*?(?P<code>\d)$")


def commands() -> list[tuple[str, int]]:
    """The lines of all ``sh`` blocks with the exit code in their comment."""
    found = []
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL):
        for line in block.strip().splitlines():
            match = PROMISED.match(line)
            assert match, f"no exit code is promised: {line}"
            found.append((match["words"], int(match["code"])))
    return found


def is_long(words: str) -> bool:
    """Whole fine-tunes take a minute and more."""
    return "llama" in words


def folder_for(words: str, tmp_path: Path) -> Path:
    """An empty folder; for a script of this checkout with ``recipes`` in it."""
    if "recipes/" in words:
        (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    return tmp_path


def is_word(words: str) -> bool:
    """A word of the command line, not a pilot; it is run where the README stands."""
    return words.split()[0] in WORDS


PILOTS = [command for command in commands() if not is_word(command[0])]


def test_there_are_commands() -> None:
    assert len(PILOTS) >= 6 and len(PILOTS) < len(commands())
    assert {code for _, code in commands()} == {0, 3}


@pytest.mark.slow  # test_sine_pilots.py is quick and looks closer
@pytest.mark.parametrize(("words", "code"), [c for c in PILOTS if not is_long(c[0])])
def test_short_commands(words: str, code: int, tmp_path: Path, run_pilot: RunPilot) -> None:
    done = run_pilot(*shlex.split(words), "tracking=none", cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.parametrize(("words", "code"), [c for c in commands() if is_word(c[0])])
def test_words(words: str, code: int, run_pilot: RunPilot) -> None:
    done = run_pilot(*shlex.split(words), cwd=ROOT)
    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("words", "code"), [c for c in PILOTS if is_long(c[0])])
def test_long_commands(words: str, code: int, tmp_path: Path, run_pilot: RunPilot) -> None:
    folder = folder_for(words, tmp_path)
    done = run_pilot(*shlex.split(words), cwd=folder, timeout=1500)
    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.parametrize("words", [words for words, _ in PILOTS])
def test_all_commands_compose(words: str, tmp_path: Path, run_pilot: RunPilot) -> None:
    done = run_pilot("--cfg", "job", *shlex.split(words), cwd=folder_for(words, tmp_path))
    assert done.returncode == 0, done.stderr


def test_every_public_word_is_explained() -> None:
    for name, word in WORDS.items():
        assert word.internal or f"`python -m pilot {name} " in README, name


def test_the_two_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`?make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_pictures_and_linked_files_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
