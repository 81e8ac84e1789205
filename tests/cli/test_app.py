"""The command line as a user meets it: real processes, messages and exit codes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from pilot.cli.app import _quoted
from tests.conftest import RunPilot

MINE = """# @package _global_
recipe: {name: mine, module: mine}
full_run: {schedule_steps: 50}
"""


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A directory with a recipe that composes and imports nothing."""
    (tmp_path / "conf" / "recipe").mkdir(parents=True)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "conf" / "recipe" / "mine.yaml").write_text(MINE)
    (tmp_path / "recipes" / "mine.py").write_text("")
    return tmp_path


def test_cfg_job_prints_the_composed_configuration(run_pilot: RunPilot) -> None:
    done = run_pilot("--cfg", "job", "+recipe=sine_mlp", "optim.learning_rate=0.5")
    assert done.returncode == 0
    tree = yaml.safe_load(done.stdout)
    assert tree["recipe"]["name"] == "sine_mlp"
    assert tree["optim"]["_target_"] == "torch.optim.SGD"
    assert tree["optim"]["learning_rate"] == 0.5


@pytest.mark.parametrize("words", [["--cfg", "job", "+recipe=nope"], ["--cfg", "job", "a.b=1"]])
def test_what_hydra_refuses_is_a_usage_error(words: list[str], run_pilot: RunPilot) -> None:
    assert run_pilot(*words).returncode == 2


def test_all_mistakes_in_one_message_without_traceback(user: Path, run_pilot: RunPilot) -> None:
    done = run_pilot("+recipe=mine", "optim.learning_rte=1", "pilot.seed=x", "optim=sdg", cwd=user)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "pilot: 3 mistakes in the configuration:\n"
        "  optim = sdg\n"
        "    rule:   no such optim\n"
        "    remedy: did you mean 'sgd'? write optim=NAME, one of: adafactor, adamw, sgd\n"
        "  optim.learning_rte = 1\n"
        "    rule:   no such key\n"
        "    remedy: did you mean 'optim.learning_rate'? "
        "a key of its own is added with a plus: +optim.learning_rte=1\n"
        "  pilot.seed = 'x'\n"
        "    rule:   must be a valid integer\n"
        "    remedy: set pilot.seed to a value that fits; conf/README.md explains each key\n"
    )
    assert not (user / "outputs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "a recipe must be chosen"),
        (["-m", "+recipe=mine"], "run one pilot per value"),
        (["+recipe=mine", "--multirun"], "run one pilot per value"),
        (["+recipe=mine", "pilot.seed=1,2"], "run one pilot per value"),
        (["--confg", "+recipe=mine"], "did you mean --cfg?"),
        (["--config-dir"], "--config-dir needs a folder"),
        (["--config-dir=nowhere", "+recipe=mine"], "--config-dir is not a folder"),
        (["jugde", "x"], "did you mean 'judge'?"),
        (["llama_ft"], "a recipe is given as +recipe=NAME"),
        (["resume", "nowhere"], "no pilot was started here"),
        (["judge", "nowhere"], "not a pilot that has been planned"),
        (["verify", "nowhere", "+recipe=mine"], "has no verdict"),
        (["judge"], "required: DIR"),
        (["+recipe=mine", "out_dir=/proc/nothing/here"], "cannot be written"),
        (["+recipe=mine", "out_dir=conf/recipe/mine.yaml"], "cannot be written"),
    ],
)
def test_usage_errors(words: list[str], message: str, user: Path, run_pilot: RunPilot) -> None:
    done = run_pilot(*words, cwd=user)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_holds_a_pilot_is_left_alone(user: Path, run_pilot: RunPilot) -> None:
    (user / "old").mkdir()
    (user / "old" / "config.yaml").write_text("kept")
    done = run_pilot("+recipe=mine", "out_dir=old", cwd=user)
    assert done.returncode == 2
    assert "holds a pilot already" in done.stderr
    assert f"python -m pilot resume {user / 'old'}" in done.stderr
    assert os.listdir(user / "old") == ["config.yaml"]
    assert (user / "old" / "config.yaml").read_text() == "kept"


def test_a_recipe_reaches_the_campaign_with_its_folder(user: Path, run_pilot: RunPilot) -> None:
    # The empty module has no build(): the campaign has the configuration written by then.
    done = run_pilot("+recipe=mine", "out_dir='my out'", "tracking=none", cwd=user)
    assert done.returncode != 0
    tree = yaml.safe_load((user / "my out" / "config.yaml").read_text())
    assert tree["recipe"]["name"] == "mine"
    assert Path(tree["out_dir"]) == user / "my out"
    assert tree["optim"]["betas"] == [0.9, 0.999]
    unresolved = (user / "my out" / "config.unresolved.yaml").read_text()
    assert "${..beta1}" in unresolved
    assert (user / "my out" / ".hydra" / "overrides.yaml").is_file()
    assert not (user / "outputs").exists()


@pytest.mark.parametrize(
    "text", ["plain", "it's", "a b,c", "back\\slash", "x\\'y", "end\\", "{=}[1]"]
)
def test_a_quoted_path_is_read_back_by_hydra(text: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    override = OverridesParser.create().parse_override(f"out_dir={_quoted(text)}")
    assert override.value() == text
