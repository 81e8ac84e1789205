"""The same model, rows, order and settings by ``native`` and by a user's Trainer, step by step.

Measured over the steps of these tests, the largest relative difference in fp32 is 2.3e-7 for a
loss and 4e-7 for a norm (another order of the same sums), under bf16 autocast 2e-5 and 1.1e-3; the
learning rates, rows and token counts are equal. With the same random numbers the same holds under
dropout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer

from pilot.engines import seeds
from pilot.engines.group_rates import GroupRates
from pilot.engines.native import NativeEngine
from pilot.records import StepRecord
from tests.engines.trainers import (
    LlamaRecipe,
    attach,
    config_for,
    make_rows,
    make_trainer,
    native,
    run_steps,
)
from tests.engines.trl_trainers import make_trl

STEPS = 10
ROWS = make_rows(36)  # with three micro-batches of four, an epoch is three whole steps
FP32, BF16 = 1e-5, 5e-3  # measured: up to 2.2e-6 (a norm) and 1.1e-3
EXACT = (
    "step",
    "learning_rate",
    "num_supervised_tokens",
    "num_tokens",
    "longest_tokens",
    "row_ids",
    "row_hash",
    "source_counts",
    "step_skipped",
)
CLOSE = ("loss", "grad_norm", "clip_coef", "param_norm", "relative_update")


def flat(engine: Any) -> list[int]:
    """The planned rows of the first steps."""
    return [row for step in range(1, STEPS + 1) for row in engine.rows_of(step)]


def assert_same(mine: list[StepRecord], theirs: list[StepRecord], tolerance: float) -> None:
    """Equal where the float must be equal, close where sums have another order."""
    assert len(mine) == len(theirs) == STEPS
    for one, other in zip(mine, theirs, strict=True):
        for name in EXACT:
            assert getattr(one, name) == getattr(other, name), (one.step, name)
        for name in CLOSE:
            expected = pytest.approx(getattr(one, name), rel=tolerance, abs=1e-9)
            assert getattr(other, name) == expected, (one.step, name)
    assert theirs[-1].loss < theirs[0].loss - 0.02


CASES: dict[str, tuple[dict[str, Any], bool, float]] = {
    "full": ({}, False, FP32),
    "full_accumulated": ({"gradient_accumulation_steps": 3}, False, FP32),
    "full_unclipped": ({"max_grad_norm": 0.0}, False, FP32),
    "full_bf16": ({"bf16": True, "learning_rate": 2e-3}, False, BF16),
    "lora": ({}, True, FP32),
    "lora_accumulated": ({"gradient_accumulation_steps": 3}, True, FP32),
    "lora_bf16": ({"bf16": True, "gradient_accumulation_steps": 3}, True, BF16),
}


def cases(*quick: str) -> list[Any]:
    """All cases; those that are not named are slow ones."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in CASES]


@pytest.mark.parametrize("case", cases("full", "full_bf16", "full_unclipped", "lora_accumulated"))
def test_a_trainer(tmp_path: Path, case: str) -> None:
    arguments, lora, tolerance = CASES[case]
    engine = attach(make_trainer(tmp_path, train=ROWS, lora=lora, **arguments))
    other = native(engine.config, flat(engine), LlamaRecipe(lora=lora, train=ROWS))
    assert_same(run_steps(other, STEPS), run_steps(engine, STEPS), tolerance)


@pytest.mark.parametrize("case", cases("full_accumulated", "lora_bf16"))
def test_an_sft_trainer(tmp_path: Path, case: str) -> None:
    arguments, lora, tolerance = CASES[case]
    trainer = make_trl("sft", tmp_path, lora=lora, **arguments)
    engine = attach(trainer)
    recipe = LlamaRecipe(lora=lora, train=trainer.train_dataset, collator=trainer.data_collator)
    other = native(engine.config, flat(engine), recipe)
    assert_same(run_steps(other, STEPS), run_steps(engine, STEPS), tolerance)


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"_target_": "torch.optim.SGD"},
    "adafactor": {
        "_target_": "transformers.optimization.Adafactor",
        "scale_parameter": False,
        "relative_step": False,
    },
    "adamw_torch": {"_target_": "torch.optim.AdamW"},
}


@pytest.mark.parametrize(
    "name",
    ["adafactor", *(pytest.param(n, marks=pytest.mark.slow) for n in ("sgd", "adamw_torch"))],
)
def test_other_optimizers(tmp_path: Path, name: str) -> None:
    rate = 0.3 if name == "sgd" else 1e-2
    trainer = make_trainer(tmp_path, train=ROWS, optim=name, learning_rate=rate)
    optim = {**OPTIMIZERS[name], "learning_rate": rate, "max_grad_norm": 1.0}
    engine = attach(trainer, config_for(trainer, optim=optim))
    other = native(engine.config, flat(engine), LlamaRecipe(train=ROWS))
    assert_same(run_steps(other, STEPS), run_steps(engine, STEPS), FP32)


def test_weight_decay_in_two_groups(tmp_path: Path) -> None:
    """A Trainer lets norms and biases out of the decay: the native run is given the same groups."""
    trainer = make_trainer(tmp_path, train=ROWS, weight_decay=0.3)
    engine = attach(trainer)
    other = native(engine.config, flat(engine), LlamaRecipe(train=ROWS))
    decayed = set(trainer.get_decay_parameter_names(trainer.model))
    named = list(other.model.named_parameters())
    groups = [[p for n, p in named if (n in decayed) is wanted] for wanted in (True, False)]
    assert all(groups)
    other.optimizer = torch.optim.AdamW(
        [{"params": groups[0], "weight_decay": 0.3}, {"params": groups[1], "weight_decay": 0.0}],
        lr=1e-2,
    )
    other.rates = GroupRates(other.optimizer)
    assert_same(run_steps(other, STEPS), run_steps(engine, STEPS), FP32)


@pytest.mark.parametrize("lora", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_dropout_with_the_same_random_numbers(tmp_path: Path, lora: bool) -> None:
    """Both loops draw other numbers between their steps; given those of the Trainer, they agree."""
    states: list[Any] = []

    class Noting(Trainer):
        def compute_loss(self, *args: Any, **more: Any) -> Any:
            states.append(seeds.random_state())
            return super().compute_loss(*args, **more)

    class Given(LlamaRecipe):
        def losses(self, model: Any, batch: Any) -> torch.Tensor:
            seeds.set_random_state(states.pop(0))
            return super().losses(model, batch)

    settings = {"dropout": 0.3, "lora": lora}
    trainer = make_trainer(
        tmp_path, kind=Noting, train=ROWS, gradient_accumulation_steps=3, **settings
    )
    engine = attach(trainer)
    theirs = run_steps(engine, STEPS)
    other = native(engine.config, flat(engine), Given(train=ROWS, **settings))
    assert_same(run_steps(other, STEPS), theirs, FP32)
    plain: NativeEngine = native(engine.config, flat(engine), LlamaRecipe(train=ROWS, **settings))
    assert run_steps(plain, 1)[0].loss != theirs[0].loss  # dropout is on
