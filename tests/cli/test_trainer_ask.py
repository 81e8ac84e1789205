"""Through the command line: a script that cannot be asked, what is said, and exit code 2."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pilot.cli import ask as asking
from pilot.cli.ask import Question, ask
from pilot.errors import UsageError
from pilot.launchers.processes import Child
from tests.conftest import RunPilot, environment

YAML = """\
# @package _global_
recipe: {name: mine, trainer: "train.py:build_trainer"}
tracking: {uri: null}
"""


def make_dir(root: Path, code: str, yaml: str = YAML) -> Path:
    """``train.py`` and a recipe of two keys."""
    (root / "conf" / "recipe").mkdir(parents=True)
    (root / "conf" / "recipe" / "mine.yaml").write_text(yaml)
    (root / "train.py").write_text(code)
    return root


RAISES = "def build_trainer():\n    print('noise')\n    raise ValueError('no such tokenizer')\n"
READS = """
import argparse
from tests.engines.trainers import make_trainer

def build_trainer():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    return make_trainer("their_output", max_steps=parser.parse_args().steps)
"""
SHORT = """
from tests.engines.trainers import make_trainer

def build_trainer():
    return make_trainer("their_output", max_steps=10, warmup_steps=20)
"""


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        (RAISES, ["ValueError: no such tokenizer", "train.py", "line 3", "raise ValueError"]),
        ("import os\nos._exit(7)\n", ["ended with code 7"]),
        (SHORT, ["full_run.warmup_steps = 20", "at most full_run.schedule_steps = 10"]),
        (READS, ["train.py: error: the following arguments are required", "recipe.argv='[--"]),
    ],
    ids=["raises", "exits", "short", "reads its command line"],
)
def test_a_script_that_cannot_be_piloted(
    tmp_path: Path, run_pilot: RunPilot, code: str, parts: list[str]
) -> None:
    root = make_dir(tmp_path / "u", code)
    done = run_pilot("+recipe=mine", cwd=root)
    assert done.returncode == 2, done.stdout + done.stderr
    for part in parts:
        assert part in done.stderr, done.stderr
    assert done.stderr.count("pilot: asking train.py:build_trainer") == 1 and done.stdout == ""
    assert {path.name for path in root.iterdir()} - {"__pycache__"} == {"conf", "train.py"}


@pytest.mark.parametrize(
    ("package", "code", "extra"),
    [
        ("accelerate", RAISES, "transformers"),
        ("trl", "from trl import SFTTrainer\n" + RAISES, "trl"),
        ("peft", "def build_trainer():\n    raise ModuleNotFoundError('x', name='peft')\n", "lora"),
    ],
)
def test_a_missing_extra_is_named(package: str, code: str, extra: str, tmp_path: Path) -> None:
    """A package that cannot be found, in front of the real one."""
    root = make_dir(tmp_path / "u", code)
    stub = tmp_path / "stub"
    stub.mkdir()
    if package != "peft":  # transformers itself looks for that one
        text = f"raise ModuleNotFoundError('gone', name={package!r})\n"
        (stub / f"{package}.py").write_text(text)
    env = environment()
    env["PYTHONPATH"] = os.pathsep.join([str(stub), env["PYTHONPATH"]])
    words = [sys.executable, "-m", "pilot", "+recipe=mine"]
    done = subprocess.run(words, cwd=root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert f"pip install 'pilot-run[{extra}]'" in done.stderr and "Traceback" not in done.stderr


def test_what_is_wrong_in_the_configuration_is_said_without_asking(
    tmp_path: Path, run_pilot: RunPilot
) -> None:
    root = make_dir(tmp_path / "u", RAISES, YAML + "optim: {learning_rate: fast}\n")
    done = run_pilot("+recipe=mine", "recipe.module=x", cwd=root)
    assert done.returncode == 2 and "asking" not in done.stderr
    assert "optim.learning_rate" in done.stderr


def _instead(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Another program in the place of the one that asks, which takes seconds to be loaded."""
    command = (sys.executable, "-c", code)
    monkeypatch.setattr(asking, "Child", functools.partial(Child, command=command))


def test_a_script_that_waits_for_ever_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import time; print('waiting for a lock', flush=True); time.sleep(600)"
    _instead(monkeypatch, code)
    monkeypatch.setattr(asking, "_FIRST_WORD_SECS", 1.0)
    question = Question(target="train.py:build", seed=0, arguments={}, timeout_secs=5.0)
    with pytest.raises(UsageError, match="took longer than launcher.timeout_secs = 5 s") as caught:
        ask(question, tmp_path)
    assert "waiting for a lock" in str(caught.value)
    assert "still asking after 1 s" in capsys.readouterr().err


def test_a_killed_script_is_said_to_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _instead(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(UsageError, match="killed by signal 9, most likely for lack of memory"):
        ask(Question(target="train.py:build", seed=0, arguments={}), tmp_path)


@pytest.mark.parametrize("given", ["recipe.argv=[--steps,250]", "recipe.argv='--steps 250'"])
def test_a_script_is_given_its_command_line(
    given: str, tmp_path: Path, run_pilot: RunPilot
) -> None:
    root = make_dir(tmp_path / "u", READS)
    done = run_pilot("+recipe=mine", given, "--cfg", "job", cwd=root)
    assert done.returncode == 0 and "schedule_steps: 250" in done.stdout, done.stderr
