"""Composing a recipe with a Trainer: its answers come last, the user's values win and are named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from pilot.arms.one_variable import change_tree
from pilot.cli import compose as composing
from pilot.cli.ask import Answer, Question
from pilot.cli.compose import Composed, compose
from pilot.cli.trainer import replaced
from pilot.config import validate
from pilot.engines.hf.arguments import changes_of
from pilot.errors import ConfigError, Mistake

YAML = """\
# @package _global_
recipe: {name: mine, trainer: "train.py:build"}
"""
FLOAT = {"kinds": ["float"], "choices": []}
TREE: dict[str, Any] = {
    "full_run": {
        "schedule_steps": 300,
        "warmup_steps": 10,
        "schedule": "linear",
        "min_learning_rate_frac": 0.0,
        "decay_frac": 0.1,
    },
    "optim": {
        "_target_": "adamw_torch_fused",
        "learning_rate": 1e-3,
        "max_grad_norm": 1.0,
        "weight_decay": 0.1,
        "beta1": 0.9,
        "beta2": 0.95,
        "eps": 1e-8,
    },
    "batch": {"micro_batch_size": 4, "grad_accum_steps": 2},
    "precision": "bf16",
    "pilot": {"seed": 7, "data_seed": 3},
}
ANSWER = Answer(
    tree={**TREE, "objective": "preference"},
    engine={
        "kind": "DPOTrainer",
        "steps_per_epoch": 50,
        "steps": 300,
        "num_devices": 1,
        "lr_scheduler_type": "linear",
        "lr_scheduler_kwargs": {},
        "own_optimizer": False,
        **TREE,
    },
    arguments={
        "adam_beta2": {**FLOAT, "own": 0.95},
        "label_smoothing_factor": {**FLOAT, "own": 0.0},
        "neftune_noise_alpha": {"kinds": ["NoneType", "float"], "choices": [], "own": None},
        "optim": {"kinds": ["str"], "choices": ["adamw_torch_fused", "sgd"], "own": "x"},
    },
    notes=("a note of the Trainer's",),
)


class Asked:
    """What is answered, and what was asked."""

    def __init__(self) -> None:
        self.answer = ANSWER
        self.questions: list[Question] = []

    def __call__(self, question: Question, cwd: Path) -> Answer:
        self.questions.append(question)
        return self.answer


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found = Asked()
    monkeypatch.setattr(composing, "ask", found)
    return found


@pytest.fixture
def user(tmp_path: Path) -> Path:
    (tmp_path / "conf" / "recipe").mkdir(parents=True)
    (tmp_path / "conf" / "recipe" / "mine.yaml").write_text(YAML)
    (tmp_path / "train.py").write_text("def build(): ...\n")
    return tmp_path


Run = Callable[..., Composed]


@pytest.fixture
def run(user: Path, asked: Asked) -> Run:
    def composed(*given: str, yaml: str = "", multirun: bool = False) -> Composed:
        (user / "conf" / "recipe" / "mine.yaml").write_text(YAML + yaml)
        return compose(["+recipe=mine", *given], user, multirun=multirun)

    return composed


def mistakes(run: Run, *given: str, **more: Any) -> dict[str, Mistake]:
    with pytest.raises(ConfigError) as caught:
        run(*given, **more)
    return {mistake.key: mistake for mistake in caught.value.mistakes}


def test_two_keys_are_a_whole_configuration(run: Run, asked: Asked) -> None:
    composed = run()
    tree = composed.tree
    config = validate(tree)
    assert config.engine.name == "transformers" and config.pilot.data == "prefix"
    for section in ("full_run", "optim", "batch"):
        for key, value in TREE[section].items():
            assert tree[section][key] == value, (section, key)
    assert "betas" not in tree["optim"]  # nothing of pilot's own optimizer is left
    assert tree["precision"] == "bf16" and tree["recipe"]["objective"] == "preference"
    assert (tree["pilot"]["seed"], tree["pilot"]["data_seed"]) == (7, 3)
    assert changes_of(config) == {}
    assert composed.notes == ("a note of the Trainer's",)
    assert composed.module_path == composed.module_path.parent / "train.py"
    assert len(asked.questions) == 1 and asked.questions[0].target == "train.py:build"


def test_the_recipes_file_and_the_command_line_win_and_are_named(run: Run) -> None:
    yaml = "optim: {learning_rate: 5.0e-4}\npilot: {min_peak_steps: 40}\n"
    composed = run("optim.max_grad_norm=null", "batch.micro_batch_size=4", yaml=yaml)
    assert changes_of(validate(composed.tree)) == {"learning_rate": 5e-4, "max_grad_norm": 0.0}
    again = "start the full run with it too"
    assert composed.notes[1:] == (
        f"optim.learning_rate=0.0005 replaces the Trainer's 0.001: {again}",
        f"optim.max_grad_norm=null replaces the Trainer's 1.0: {again}",
    )
    assert composed.words == (
        "+recipe=mine",
        "optim.max_grad_norm=null",
        "batch.micro_batch_size=4",
    )


def test_what_hydra_is_given_composes_to_the_same(run: Run, user: Path) -> None:
    from hydra import compose as hydra_compose

    from pilot.cli.search import hydra_session

    composed = run("optim.learning_rate=2e-3", "recipe.arguments.adam_beta2=0.9")
    with hydra_session():
        cfg = hydra_compose("config", list(composed.overrides))
        again: Any = OmegaConf.to_container(cfg, resolve=True)
    again["out_dir"] = composed.tree["out_dir"]  # the time is in it
    assert again == composed.tree


@pytest.mark.parametrize(
    ("yaml", "left"),
    [
        ("full_run: {epochs: 2.0}\n", {"epochs": 2.0, "schedule_steps": None, "warmup_steps": 10}),
        ("full_run: {schedule_steps: 90}\n", {"schedule_steps": 90, "epochs": None}),
        ("full_run: {warmup_frac: 0.1}\n", {"warmup_frac": 0.1, "warmup_steps": None}),
    ],
    ids=["epochs", "steps", "frac"],
)
def test_a_length_in_another_unit(run: Run, yaml: str, left: dict[str, Any]) -> None:
    composed = run(yaml=yaml)
    assert {key: composed.tree["full_run"][key] for key in left} == left
    (line,) = composed.notes[1:]
    assert "replaces the Trainer's" in line


def test_an_argument_by_its_own_name(run: Run, asked: Asked) -> None:
    composed = run("recipe.arguments.label_smoothing_factor=0.1")
    assert changes_of(validate(composed.tree)) == {"label_smoothing_factor": 0.1}
    assert asked.questions[0].arguments == {"label_smoothing_factor": 0.1}
    assert "recipe.arguments.label_smoothing_factor=0.1 replaces the Trainer's 0.0" in "".join(
        composed.notes
    )


ARMS = [
    ("recipe.arguments.adam_beta2", 0.9, {"adam_beta2": 0.9}),
    ("recipe.arguments.neftune_noise_alpha", 5.0, {"neftune_noise_alpha": 5.0}),
    ("optim.beta2", 0.99, {"adam_beta2": 0.99}),
    ("optim.max_grad_norm", None, {"max_grad_norm": 0.0}),
    ("full_run.warmup_steps", 30, {"warmup_steps": 30}),
    ("full_run.schedule_steps", 600, {"max_steps": 600}),
    ("full_run.schedule", "cosine", {"lr_scheduler_type": "cosine"}),
    ("pilot.seed", 8, {"seed": 8, "data_seed": 3}),
]


def test_an_arm_changes_one_argument(run: Run) -> None:
    shown = ", ".join(f"{{{key}: {'null' if v is None else v}}}" for key, v, _ in ARMS)
    composed = run(f"arms.add=[{shown}]")
    for key, value, expected in ARMS:
        changed = change_tree(composed.tree, key, value)
        assert changed.follows == {}
        assert changes_of(validate(changed.tree)) == expected, key


def test_a_list_on_the_command_line_is_arms(run: Run) -> None:
    composed = run("recipe.arguments.adam_beta2=0.9,0.99", multirun=True)
    added = composed.tree["arms"]["add"]
    assert [list(change.values()) for change in added] == [[0.9], [0.99]]


@pytest.mark.parametrize(
    ("given", "key", "rule", "remedy"),
    [
        ("recipe.arguments.adam_beta3=0.9", "recipe.arguments.adam_beta3", "no such", "adam_beta2"),
        ("recipe.arguments.adam_beta2=x", "recipe.arguments.adam_beta2", "must be a number", ""),
        ("optim._target_=sgdd", "optim._target_", "an optimizer of the Trainer's", "'sgd'"),
        ("+optim.momentum=0.9", "optim.momentum", "given no such number", "recipe.arguments"),
        ("full_run.schedule=trainer", "full_run.schedule", "this one's is linear", "leave it out"),
        (
            "arms.add=[{recipe.arguments.adam_beta3: 0.9}]",
            "arms.add",
            "no such name",
            "adam_beta2",
        ),
        ("arms.add=[{optim._target_: sgdd}]", "arms.add", "an optimizer of the", "'sgd'"),
        ("arms.add=[{pilot.data_seed: 4}]", "arms.add", "the order of the rows", ""),
        ("full_run.warmup_steps=301", "full_run.warmup_steps", "at most", "shorten"),
    ],
)
def test_what_no_argument_can_express(
    run: Run, given: str, key: str, rule: str, remedy: str
) -> None:
    mistake = mistakes(run, given)[key]
    assert rule in mistake.rule and remedy in mistake.remedy


@pytest.mark.parametrize(
    ("given", "key", "rule"),
    [
        ("optim=sgd", "optim", "its own optimizer"),
        ("optim.learning_rate=abc", "optim.learning_rate", "valid number"),
        ("optim.learning_rat=1", "optim.learning_rat", "no such key"),
        ("recipe.arguments.learning_rate=1", "recipe.arguments.learning_rate", "key of its own"),
        ("recipe.arguments.save_steps=1", "recipe.arguments.save_steps", "switches it off"),
        ("+recipe.modul=x", "recipe.modul", "nothing reads it"),
        ("+recipe.module=llama_ft", "recipe.module", "not both"),
        ("recipe.trainer=gone.py:build", "recipe.trainer", "there is no file"),
        ("recipe.trainer=gone:build", "recipe.trainer", "there is no file"),
        ("+engine.answers.steps=3", "engine.answers.steps", "no such key"),
        ("recipe.trainer=5", "recipe.trainer", "must be text"),
    ],
)
def test_what_is_wrong_at_once_is_said_without_asking(
    run: Run, asked: Asked, given: str, key: str, rule: str
) -> None:
    assert rule in mistakes(run, given)[key].rule
    assert asked.questions == []


def test_every_early_mistake_at_once(run: Run, asked: Asked) -> None:
    found = mistakes(run, "optim=sgd", "batch.micro_batch_size=0", "gates.stric=true")
    assert set(found) == {"optim", "batch.micro_batch_size", "gates.stric"}
    assert asked.questions == []


@pytest.mark.parametrize(
    ("yaml", "key"),
    [
        ("pilot: {data: representative}\n", "pilot.data"),
        ("batch: {sequence_length: 128}\n", "batch.sequence_length"),
        ("precision: fp64\n", "precision"),
        ("engine: {answers: {steps: 3}}\n", "engine.answers"),
        ("defaults:\n  - override /optim: sgd\n", "optim"),
    ],
)
def test_what_a_recipes_file_may_not_say(run: Run, yaml: str, key: str) -> None:
    assert key in mistakes(run, yaml=yaml)


def test_an_engine_that_was_chosen_is_not_changed(run: Run) -> None:
    found = mistakes(run, "engine=native")
    assert "engine=transformers" in found["recipe.trainer"].remedy


def test_a_warm_up_longer_than_the_epochs(run: Run, asked: Asked) -> None:
    tree: dict[str, Any] = copy.deepcopy(dict(ANSWER.tree))
    tree["full_run"].pop("schedule_steps")
    tree["full_run"] |= {"epochs": 1.0, "warmup_steps": 51}
    asked.answer = Answer(
        tree=tree, engine={**ANSWER.engine, **tree, "steps": 50}, arguments=ANSWER.arguments
    )
    assert "the 50 steps" in mistakes(run)["full_run.warmup_steps"].rule


def test_an_optimizer_of_the_scripts_own_reads_no_argument(run: Run, asked: Asked) -> None:
    asked.answer = Answer(
        tree=ANSWER.tree,
        engine={**ANSWER.engine, "own_optimizer": True},
        arguments=ANSWER.arguments,
    )
    run()  # the default arms of the learning rate and of clipping are no mistake
    found = mistakes(run, "optim.learning_rate=2e-3", "optim._target_=sgd")
    assert "makes its optimizer itself" in found["optim.learning_rate"].rule
    assert "makes its optimizer itself" in found["optim._target_"].rule


def test_a_scheduler_of_the_scripts_own_reads_no_argument(run: Run, asked: Asked) -> None:
    asked.answer = Answer(
        tree=ANSWER.tree,
        engine={**ANSWER.engine, "own_scheduler": True},
        arguments=ANSWER.arguments,
    )
    found = mistakes(run, "full_run.warmup_steps=3")
    assert "makes its scheduler itself" in found["full_run.warmup_steps"].rule
    assert "arms.add" in mistakes(run, "arms.add=[{full_run.schedule: cosine}]")


def test_a_native_recipe_is_not_asked(asked: Asked, tmp_path: Path) -> None:
    compose(["+recipe=sine_mlp"], tmp_path)
    assert asked.questions == []


def test_nothing_is_replaced_by_the_same_number(run: Run) -> None:
    composed = run("optim.learning_rate=0.001", "pilot.seed=7")
    assert replaced(composed.tree, ANSWER) == []
