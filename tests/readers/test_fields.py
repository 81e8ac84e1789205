from __future__ import annotations

import math

import pytest

from pilot.readers.fields import column, objective, step_rank
from pilot.readers.points import Points
from pilot.readers.record import add_record, number


@pytest.mark.parametrize(
    "key",
    [
        "loss",
        "train_loss",
        "train/loss",
        "training_loss",
        "lm_loss",
        "total_loss",
        "ce_loss",
        "batch_loss",
        "Loss/train",
        "train/CrossEntropyLoss",
        "trainLoss",
        "train/step_loss",
        "metrics/train/LanguageCrossEntropy",
        "loss_metrics/global_avg_loss",
        "loss/train/total",
        "train_loss_step",
    ],
)
def test_names_of_the_training_loss(key: str) -> None:
    found = column(key)
    assert found is not None and not found.is_validation
    assert (found.name, found.tier) == ("loss", 0)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("eval_loss", ""),
        ("eval/loss", ""),
        ("val_loss", ""),
        ("validation loss", ""),
        ("Loss/val", ""),
        ("val_loss_epoch", ""),
        ("eval_yahma/alpaca-cleaned_loss", "yahma/alpaca-cleaned"),
        ("eval_g0_loss", "g0"),
        ("validation/c4/loss", "c4"),
        ("eval/held_out_loss", "held_out"),
        ("eval/c4_en/CrossEntropyLoss", "c4_en"),
        ("val_loss/dataloader_idx_1", "dataloader_idx_1"),
        ("test_loss", "test"),
    ],
)
def test_names_of_validations(key: str, name: str) -> None:
    found = column(key)
    assert found is not None and found.is_validation and found.name == name


@pytest.mark.parametrize(
    "key",
    [
        "eval_accuracy",
        "eval_runtime",
        "eval_rewards/chosen",
        "best_val_loss",
        "train/ema",
        "eval/best",
        "aux_loss",
        "max_grad_norm",
        "loss_type",
        "total_flos",
        "entropy",
        "train_runtime",
        "mem/gpu_peak_gb",
        "kl",
        "lr_ratio",
    ],
)
def test_names_of_other_things(key: str) -> None:
    assert column(key) is None


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("grad_norm", "grad_norm"),
        ("train/grad_norm", "grad_norm"),
        ("optim/total grad norm", "grad_norm"),
        ("l2_norm/grad/global", "grad_norm"),
        ("lr", "learning_rate"),
        ("train/learning_rate", "learning_rate"),
        ("lr-AdamW/pg1", "learning_rate"),
        ("loss scale", "loss_scale"),
        ("epoch", "epoch"),
        ("num_input_tokens_seen", "num_tokens"),
    ],
)
def test_names_of_other_quantities(key: str, name: str) -> None:
    found = column(key)
    assert found is not None and found.name == name


def test_steps_in_order_of_trust() -> None:
    keys = ["_step", "batch", "iter", "step", "train/global_step", "current_steps"]
    ranked = sorted(keys, key=lambda key: step_rank(key) or 0)
    assert ranked[0] == "train/global_step" and ranked[-2:] == ["_step", "batch"]
    assert step_rank("num_steps") is None and step_rank("total_steps") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1.5e-3", 1.5e-3),
        (" 7 ", 7.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("np.float64(2.5)", 2.5),
        ("tensor(0.5, device='cuda:0')", 0.5),
        (10**400, math.inf),
        (None, None),
        ("", None),
        ("abc", None),
        ([1.0], None),
    ],
)
def test_numbers(value: object, expected: float | None) -> None:
    assert number(value) == expected


def test_nan_is_a_number() -> None:
    for text in ("nan", "NaN", "-nan", float("nan")):
        assert math.isnan(number(text) or 0.0)


def test_a_boolean_is_a_flag_only() -> None:
    points = Points("log", "test")
    assert add_record(points, {"step": 1, "loss": 1.0, "skipped": True, "grad_norm": False})
    (trace,) = points.traces()
    assert trace.train["skipped"].values.tolist() == [1.0] and "grad_norm" not in trace.train


def test_configurations_and_summaries_are_no_points() -> None:
    points = Points("log", "test")
    assert not add_record(points, {"event": "config", "lr": 1e-4, "num_steps": 100})
    assert not add_record(points, {"train_runtime": 9.0, "train_loss": 0.5, "epoch": 3.0})
    assert not add_record(points, {"step": 5, "eval_accuracy": 0.5})
    assert points.traces() == []


def test_nested_objects() -> None:
    points = Points("log", "test")
    add_record(points, {"step": 3, "metrics": {"train": {"loss": 2.0}, "eval": {"loss": 3.0}}})
    (trace,) = points.traces()
    assert trace.train["loss"].values.tolist() == [2.0]
    assert trace.validations[""].values.tolist() == [3.0]


def test_the_name_with_the_most_points_is_the_loss() -> None:
    points = Points("log", "test")
    for step in range(10):
        add_record(points, {"step": step, "train/step_loss": 1.0})
    add_record(points, {"step": 9, "train/loss": 7.0})
    (trace,) = points.traces()
    assert trace.train["loss"].values.tolist() == [1.0] * 10
    assert trace.notes == ("loss is the column 'train/step_loss' (also there: 'train/loss')",)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["loss", "reward", "completions/mean_length", "kl"], "rl"),
        (["train/reverse_kl", "train/loss"], "rl"),
        (["loss", "rewards/chosen", "rewards/margins", "logps/chosen"], "preference"),
        (["loss", "log_odds_ratio", "rewards/chosen"], "preference"),
        (["loss", "mean_token_accuracy", "num_tokens"], "lm"),
        (["loss", "grad_norm", "epoch"], "unknown"),
    ],
)
def test_the_objective_by_evidence(keys: list[str], expected: str) -> None:
    assert objective(keys) == expected
