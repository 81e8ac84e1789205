"""TRL's trainers under pilot: nothing moved, rows validated as they do it, states that go on."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pilot.engines.hf.rows import count_tokens
from pilot.engines.state import copy_state
from pilot.experiments import determinism, longest_sample
from tests import tiny_llama
from tests.engines.trainers import attach, run_steps
from tests.engines.trl_trainers import make_trl

STEPS, KEPT = 8, 4
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sft_defaults": ("sft", {"bf16": True, "gradient_checkpointing": True, "dropout": 0.2}),
    "dpo": ("dpo", {"dropout": 0.2, "gradient_accumulation_steps": 3}),
    "kto": ("kto", {"dropout": 0.2}),
    "reward": ("reward", {"gradient_accumulation_steps": 3}),
    "dpo_moving_reference": ("dpo", {"sync_ref_model": True, "ref_model_sync_steps": 2}),
    "grpo": ("grpo", {"dropout": 0.2, "gradient_accumulation_steps": 2}),
    "grpo_seldom_generated": ("grpo", {"steps_per_generation": 4}),
}


@pytest.mark.parametrize(
    "case",
    [
        case if case in ("dpo", "grpo") else pytest.param(case, marks=pytest.mark.slow)
        for case in CASES
    ],
)
def test_a_watched_run_is_the_unwatched_one_and_goes_on_from_a_state(
    tmp_path: Path, case: str
) -> None:
    kind, settings = CASES[case]
    plain = make_trl(kind, tmp_path, **settings, max_steps=STEPS, lr_scheduler_type="constant")
    plain.train()
    logs = [log for log in plain.state.log_history if "loss" in log]
    engine = attach(
        make_trl(kind, tmp_path, **settings, max_steps=STEPS, lr_scheduler_type="constant")
    )
    states: list[Any] = []

    def look() -> None:
        if engine.step in (1, KEPT):
            engine.request_validation("x")
        if engine.step == KEPT:
            states.append(copy_state(engine.snapshot()))

    def before() -> None:
        longest_sample.measure(engine, np.arange(36), 4)
        assert determinism.measure(engine, engine.rows_of(1)).values["relative_spread"] == 0.0

    records = run_steps(engine, STEPS, before=before, after=look)
    assert [(r.grad_norm, r.learning_rate) for r in records] == [
        (log["grad_norm"], log["learning_rate"]) for log in logs
    ]
    assert [r.loss for r in records] == pytest.approx([log["loss"] for log in logs], rel=1e-6)
    resumed = attach(
        make_trl(kind, tmp_path, **settings, max_steps=STEPS, lr_scheduler_type="constant")
    )
    resumed.restore(states[0])
    assert run_steps(resumed, STEPS) == records[KEPT:]


@pytest.mark.parametrize("kind", ["sft", "dpo", "kto", "reward"])
def test_rows_are_validated_as_the_trainer_does(tmp_path: Path, kind: str) -> None:
    trainer = make_trl(kind, tmp_path, per_device_eval_batch_size=1)
    engine = attach(trainer)
    run_steps(engine, 3, after=lambda: engine.request_validation("x"))
    found = engine.observer.validations[-1]
    chosen = trainer.eval_dataset.select(range(len(trainer.eval_dataset)))
    expected = trainer.evaluate(chosen)["eval_loss"]  # the mean over rows
    everything = engine.config.model_copy(
        update={"pilot": engine.config.pilot.model_copy(update={"validation_rows": 256})}
    )
    engine.config = everything
    engine.request_validation("all")
    whole = engine.observer.validations[-1]
    assert len(found.loss_sums) == 8 and len(whole.loss_sums) == 12
    per_row = [a / b for a, b in zip(whole.loss_sums, whole.token_counts, strict=True)]
    assert sum(per_row) / len(per_row) == pytest.approx(expected, rel=1e-5)
    if kind != "sft":
        assert set(whole.token_counts) == {1}  # the loss of a pair is no mean over tokens


def batch_of(trainer: Any) -> Any:
    """The first batch that the trainer's loader makes."""
    return next(iter(trainer.get_train_dataloader()))


def test_what_is_supervised(tmp_path: Path) -> None:
    """Prompt and completion, the assistant alone, rows joined to one: as the loss counts them."""
    words = [{"role": "user", "content": "what does"}, {"role": "assistant", "content": "the mean"}]
    rows = [{"messages": [*words, *words][: 2 + 2 * (row % 2)]} for row in range(20)]
    tokenizer = copy.deepcopy(tiny_llama.tokenizer())
    said = "{{ m['content'] + eos_token }}"
    marked = "{% generation %}" + said + "{% endgeneration %}"
    tokenizer.chat_template = tiny_llama.CHAT_TEMPLATE.replace(said, marked)
    assistant = {"rows": rows, "tokenizer": tokenizer}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"completion_only_loss": False}, {}),
        ({"padding_free": True, "max_length": None}, {}),
        ({"packing": True, "max_length": 64}, {}),
        ({}, assistant),
        ({"assistant_only_loss": True}, assistant),
    ]
    counts = []
    for arguments, more in cases:
        trainer = make_trl("sft", tmp_path, **arguments, **more)
        batch = batch_of(trainer)
        expected = int(trainer._get_num_items_in_batch([batch], trainer.args.device))
        supervised, tokens, longest = count_tokens(trainer, [batch]).tolist()
        assert supervised == expected > 0, arguments
        counts.append(supervised)
        mask = batch.get("attention_mask")
        total = int(mask.sum()) if mask is not None else batch["input_ids"].numel()
        assert tokens == total and 0 < longest <= tokens
        if "position_ids" in batch:
            assert longest == int(batch["position_ids"].max()) + 1 < tokens
    assert counts[-1] < counts[-2] and counts[0] < counts[1]


def test_joined_rows_train_as_they_would_without_pilot(tmp_path: Path) -> None:
    settings = {"padding_free": True, "max_length": None, "max_steps": 4}
    plain = make_trl("sft", tmp_path, **settings)
    plain.train()
    logs = [log for log in plain.state.log_history if "loss" in log]
    records = run_steps(attach(make_trl("sft", tmp_path, **settings)), 4)
    assert [r.grad_norm for r in records] == [log["grad_norm"] for log in logs]
    assert [r.loss for r in records] == pytest.approx([log["loss"] for log in logs], rel=1e-6)
