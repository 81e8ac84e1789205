"""A real Trainer's settings by our keys, and back: one leaf is one training argument."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pilot.config import Config
from pilot.engines.hf.answers import objective_of, schedule_of, settings_of, warmup_of
from pilot.engines.hf.arguments import changes_of, disagreements, planned_rates
from pilot.engines.hf.ask import answer_of
from pilot.engines.hf.build import Built
from pilot.schedule import full_schedule
from tests.engines.trainers import TRAIN, make_trainer
from tests.trees import config_tree

CLIP = {"arms": {"learning_rate_scales": [], "max_grad_norm": None, "num_replicas": 0}}


def answered(trainer: Any, **sections: Any) -> Config:
    """The configuration that a Trainer's answers give, with ``sections`` of the user's."""
    answer = answer_of(Built(trainer=trainer, own={}), "x")
    tree = {**answer["tree"], "engine": {"name": "transformers", "answers": answer["engine"]}}
    tree.pop("objective")
    base: dict[str, Any] = {**config_tree(), **{k: v for k, v in tree.items() if k != "pilot"}}
    base["pilot"] = {**tree["pilot"], "data": "prefix", "validation_rows": 8}
    base["recipe"] = {"name": "x", "trainer": "x.py:b", "arguments": {}}
    for name, value in sections.items():
        base[name] = {**base[name], **value} if isinstance(value, dict) else value
    return Config.model_validate(base)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_trainer(tmp_path_factory.mktemp("plain"), gradient_accumulation_steps=3)


def test_a_trainer_that_nobody_changes_is_left_alone(plain: Any) -> None:
    config = answered(plain)
    assert changes_of(config) == {}
    assert disagreements(plain, {}, config, len(TRAIN), 60) == []
    assert config.optim.model_dump(by_alias=True) == {
        "_target_": "adamw_torch_fused",
        "learning_rate": 1e-2,
        "max_grad_norm": 1.0,
        "weight_decay": 0.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
    }
    assert (config.pilot.seed, config.pilot.data_seed) == (7, 7)


@pytest.mark.parametrize(
    ("section", "value", "expected"),
    [
        ("optim", {"learning_rate": 3e-4}, {"learning_rate": 3e-4}),
        ("optim", {"max_grad_norm": None}, {"max_grad_norm": 0.0}),
        ("optim", {"weight_decay": 0.1}, {"weight_decay": 0.1}),
        ("optim", {"beta1": 0.8}, {"adam_beta1": 0.8}),
        ("optim", {"beta2": 0.95}, {"adam_beta2": 0.95}),
        ("optim", {"eps": 1e-6}, {"adam_epsilon": 1e-6}),
        ("optim", {"_target_": "sgd"}, {"optim": "sgd"}),
        ("full_run", {"warmup_steps": 9}, {"warmup_steps": 9}),
        ("full_run", {"schedule_steps": 90}, {"max_steps": 90}),
        ("full_run", {"schedule": "linear"}, {"lr_scheduler_type": "linear"}),
        ("full_run", {"schedule": "constant"}, {"lr_scheduler_type": "constant_with_warmup"}),
        ("full_run", {"decay_frac": 0.5}, {}),
        ("batch", {"micro_batch_size": 2}, {"per_device_train_batch_size": 2}),
        ("batch", {"grad_accum_steps": 2}, {"gradient_accumulation_steps": 2}),
        ("precision", "bf16", {"bf16": True, "fp16": False}),
        ("pilot", {"seed": 11}, {"seed": 11, "data_seed": 7}),
        ("pilot", {"data_seed": 3}, {"data_seed": 3}),
        ("recipe", {"arguments": {"adam_beta2": 0.9}}, {"adam_beta2": 0.9}),
    ],
)
def test_one_leaf_is_one_argument(
    plain: Any, section: str, value: Any, expected: dict[str, Any]
) -> None:
    assert changes_of(answered(plain, **{section: value})) == expected


def test_a_key_of_ours_goes_before_an_argument_by_its_name(plain: Any) -> None:
    """The recipe sets adam_beta2 by name; an arm changes optim.beta2: it must not be lost."""
    more = {"recipe": {"arguments": {"adam_beta2": 0.9}}, "optim": {"beta2": 0.5}}
    assert changes_of(answered(plain, **more)) == {"adam_beta2": 0.5}


def test_epochs_in_place_of_steps(plain: Any) -> None:
    config = answered(plain, full_run={"schedule_steps": None, "epochs": 2.0})
    assert changes_of(config) == {"num_train_epochs": 2.0, "max_steps": -1}
    assert full_schedule(config, len(TRAIN)).schedule_steps == 6  # 8 batches: 3 steps an epoch


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("epochs", [1.0, 2.5])
def test_a_trainer_by_epochs_has_its_own_count_of_steps(
    tmp_path: Path, drop: bool, epochs: float
) -> None:
    trainer = make_trainer(
        tmp_path,
        max_steps=-1,
        num_train_epochs=epochs,
        per_device_train_batch_size=5,
        gradient_accumulation_steps=2,
        dataloader_drop_last=drop,
        warmup_steps=0.25,
    )
    config = answered(trainer)
    steps = trainer.set_initial_training_values(trainer.args, trainer.get_train_dataloader())[-1]
    schedule = full_schedule(config, len(TRAIN))
    assert schedule.schedule_steps == steps
    assert schedule.warmup_steps == trainer.args.get_warmup_steps(steps)
    assert config.full_run.epochs == epochs and config.full_run.warmup_frac == 0.25
    assert disagreements(trainer, {}, config, len(TRAIN), steps) == []
    half = answered(trainer, full_run={"epochs": epochs / 2})
    assert changes_of(half) == {"num_train_epochs": epochs / 2}


MIN = "min_learning_rate_frac"


@pytest.mark.parametrize(
    ("kind", "kwargs", "expected"),
    [
        ("linear", None, {"schedule": "linear"}),
        ("cosine", None, {"schedule": "cosine"}),
        ("constant_with_warmup", None, {"schedule": "constant"}),
        ("cosine_with_min_lr", {"min_lr_rate": 0.25}, {"schedule": "cosine", MIN: 0.25}),
        ("cosine_with_min_lr", {"min_lr": 1e-3}, {"schedule": "cosine", MIN: 0.1}),
        ("polynomial", {"power": 1.0, "lr_end": 1e-3}, {"schedule": "linear", MIN: 0.1}),
        ("cosine_with_restarts", {"num_cycles": 1}, {"schedule": "cosine"}),
        ("cosine_with_restarts", {"num_cycles": 3}, {"schedule": "trainer"}),
        ("cosine", {"num_cycles": 1.5}, {"schedule": "trainer"}),
        ("polynomial", {"power": 2.0}, {"schedule": "trainer"}),
        ("inverse_sqrt", None, {"schedule": "trainer"}),
        ("warmup_stable_decay", {"num_decay_steps": 12}, {"schedule": "trainer"}),
        (
            "warmup_stable_decay",
            {"num_decay_steps": 12, "decay_type": "linear", "min_lr_ratio": 0.1},
            {"schedule": "wsd", MIN: 0.1, "decay_frac": 0.2},
        ),
    ],
)
def test_a_schedule_has_our_name_only_when_every_rate_is_ours(
    tmp_path: Path, kind: str, kwargs: Any, expected: dict[str, Any]
) -> None:
    trainer = make_trainer(tmp_path, lr_scheduler_type=kind, lr_scheduler_kwargs=kwargs)
    found = schedule_of(trainer, planned_rates(trainer, 60), warmup_of(trainer.args, 60))
    assert found == {MIN: 0.0, "decay_frac": 0.1, **expected} | {
        MIN: pytest.approx(expected.get(MIN, 0.0))
    }


@pytest.mark.parametrize(
    "run",
    [
        {"schedule": "wsd", "decay_frac": 0.3},
        {"schedule": "linear", "min_learning_rate_frac": 0.2},
        {"schedule": "cosine", "min_learning_rate_frac": 0.2},
        {"schedule": "constant", "warmup_steps": 0},
        {"warmup_steps": 20},
    ],
)
def test_a_schedule_of_ours_becomes_the_trainers(
    tmp_path: Path, plain: Any, run: dict[str, Any]
) -> None:
    """Every rate, to the float."""
    config = answered(plain, full_run=run)
    trainer = make_trainer(tmp_path, gradient_accumulation_steps=3, **changes_of_args(config))
    assert disagreements(trainer, {}, config, len(TRAIN), 60) == []


def changes_of_args(config: Config) -> dict[str, Any]:
    return {"lr_scheduler_type": "cosine", **changes_of(config)}


def test_what_cannot_be_made_to_agree_is_named_in_full(plain: Any) -> None:
    other = {"learning_rate": 1e-3, "max_grad_norm": None, "beta2": 0.9}
    config = answered(plain, optim=other, precision="bf16", full_run={"schedule_steps": 70})
    lines = disagreements(plain, {}, config, len(TRAIN), 60)
    assert len(lines) == 5
    text = "\n".join(lines)
    for part in ("learning_rate is 0.001", "max_grad_norm is None", "beta2 is 0.9", "bf16"):
        assert part in text
    assert "full_run has 70 steps, the Trainer trains 60" in text


def test_the_optimizer_of_the_script(tmp_path: Path) -> None:
    from tests.engines.trainers import make_model

    model = make_model()
    own = torch.optim.SGD(model.parameters(), lr=0.3, weight_decay=0.01)
    found = settings_of(make_trainer(tmp_path, model=model, optimizers=(own, None)))["optim"]
    assert found["_target_"] == "torch.optim.sgd.SGD"
    assert (found["learning_rate"], found["weight_decay"]) == (0.3, 0.01)
    assert "beta1" not in found


def test_an_optimizer_without_moments_has_none(tmp_path: Path) -> None:
    found = settings_of(make_trainer(tmp_path, optim="sgd"))["optim"]
    assert set(found) == {"_target_", "learning_rate", "max_grad_norm", "weight_decay"}


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        *(("Trainer", "lm"), ("SFTTrainer", "lm"), ("Seq2SeqTrainer", "lm")),
        *(
            ("DPOTrainer", "preference"),
            ("KTOTrainer", "preference"),
            ("ORPOTrainer", "preference"),
        ),
        *(("CPOTrainer", "preference"), ("RewardTrainer", "preference")),
        *(("GRPOTrainer", "rl"), ("RLOOTrainer", "rl"), ("PPOTrainer", "rl")),
        ("OnlineDPOTrainer", "rl"),
    ],
)
def test_the_objective_is_that_of_the_kind_of_trainer(name: str, objective: str) -> None:
    kind = type("Mine", (type(name, (), {}),), {})  # a subclass of the user's
    assert objective_of(kind()) == objective
