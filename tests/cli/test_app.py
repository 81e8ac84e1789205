"""The command line as a user meets it: real processes, messages and exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

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
        "    remedy: did you mean 'sgd'? write optim=NAME, one of: adafactor, adamw, own, sgd\n"
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
        (["-m", "+recipe=mine"], "-m\n    rule:   needs a list of values"),
        (["+recipe=mine", "--multirun"], "-m\n    rule:   needs a list of values"),
        (["+recipe=mine", "pilot.seed=1,2"], "add -m: each value is an arm"),
        (["-m", "+recipe=mine,other"], "run one pilot per recipe (+recipe=NAME)"),
        (["-m", "+recipe=mine", "optim=adamw,sgd"], "run one pilot per optim (optim=NAME)"),
        (["--multrun", "+recipe=mine"], "did you mean --multirun?"),
        (["+recipe=mine", "arms.add=[{optim.bta2: 0.9}]"], "did you mean 'optim.beta2'?"),
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
    for name in ("config.yaml", "start.json"):
        (user / "old" / name).write_text("kept")
    done = run_pilot("+recipe=mine", "out_dir=old", cwd=user)
    assert done.returncode == 2
    assert "holds a pilot already" in done.stderr
    assert f"python -m pilot resume {user / 'old'}" in done.stderr
    assert sorted(os.listdir(user / "old")) == ["config.yaml", "start.json"]
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


def test_lists_of_values_make_one_pilot(user: Path, run_pilot: RunPilot) -> None:
    done = run_pilot(
        *("+recipe=mine", "optim.beta1=0.8,0.9", "out_dir=out", "tracking=none", "-m"),
        *("optim.max_grad_norm=null,1.0", "pilot.seed=3"),
        cwd=user,
    )
    assert done.returncode != 0  # the module has no build(): see above
    assert "did you mean" not in done.stderr
    tree = yaml.safe_load((user / "out" / "config.yaml").read_text())
    assert tree["arms"]["learning_rate_scales"] == ["1/3"]  # arms=star
    assert tree["arms"]["add"] == [
        {"optim.beta1": 0.8},
        {"optim.beta1": 0.9},
        {"optim.max_grad_norm": None},
        {"optim.max_grad_norm": 1.0},
    ]
    assert (tree["optim"]["beta1"], tree["optim"]["max_grad_norm"]) == (0.9, 1.0)
    facts = json.loads((user / "out" / "start.json").read_text())
    assert facts["words"] == ["+recipe=mine", "tracking=none", "pilot.seed=3"]
    assert facts["notes"] == [
        "optim.beta1=0.9 is what the recipe has already: no arm",
        "optim.max_grad_norm=1.0 is what the recipe has already: no arm",
    ]
    hydras = yaml.safe_load((user / "out" / ".hydra" / "config.yaml").read_text())
    assert hydras["arms"]["add"] == tree["arms"]["add"]
    assert not (user / "multirun").exists()


def test_cfg_job_shows_the_lists_as_arms(user: Path, run_pilot: RunPilot) -> None:
    done = run_pilot("-m", "--cfg", "job", "+recipe=mine", "optim.beta2=0.95,0.99", cwd=user)
    assert (done.returncode, done.stderr) == (0, "")
    tree = yaml.safe_load(done.stdout)
    assert tree["arms"]["add"] == [{"optim.beta2": 0.95}, {"optim.beta2": 0.99}]
    assert tree["optim"]["beta2"] == 0.999
    done = run_pilot("--multirun", "-c", "job", "+recipe=mine", "optim.beta2=1,x", cwd=user)
    assert done.returncode == 0  # only the optimizer's class knows what it takes
    done = run_pilot("--multirun", "-c", "job", "+recipe=mine", "optim.beta3=1,2", cwd=user)
    assert done.returncode == 2
    assert "optim.beta3 = 1,2\n    rule:   no such key" in done.stderr
