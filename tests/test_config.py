"""The schema: types, bounds and contradictions, all reported at once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from pilot import config as schema
from pilot.config import conf_dir, find_mistakes, validate
from pilot.errors import ConfigError
from pilot.mistakes import flat_keys, nearest
from tests.trees import config_tree


def _wrong(**sections: Any) -> dict[str, str]:
    mistakes, _ = find_mistakes(config_tree(**sections))
    return {mistake.key: mistake.rule for mistake in mistakes}


def test_a_valid_tree_becomes_typed_with_defaults() -> None:
    config = validate(config_tree())
    assert config.optim.target == "torch.optim.SGD"
    assert config.pilot.seed == 0
    assert config.gates.validation.num_se == 2.0
    assert config.full_run.schedule_steps == 400


def test_a_whole_number_is_a_number_but_a_fraction_is_no_count() -> None:
    assert validate(config_tree(optim={"learning_rate": 1})).optim.learning_rate == 1.0
    assert _wrong(pilot={"seed": 1.0}) == {"pilot.seed": "must be a valid integer"}


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("optim", "learning_rate", 0.0),
        ("optim", "learning_rate", -1e-3),
        ("optim", "learning_rate", math.nan),
        ("optim", "learning_rate", math.inf),
        ("optim", "learning_rate", "1e-3"),
        ("optim", "learning_rate", True),
        ("optim", "learning_rate", None),
        ("optim", "max_grad_norm", 0.0),
        ("optim", "weight_decay", -0.1),
        ("full_run", "schedule_steps", 0),
        ("full_run", "schedule", "cosin"),
        ("full_run", "warmup_frac", 1.0),
        ("full_run", "min_learning_rate_frac", 1.0),
        ("full_run", "decay_frac", 0.0),
        ("full_run", "start_step", -1),
        ("batch", "micro_batch_size", 0),
        ("batch", "grad_accum_steps", "2"),
        ("batch", "sequence_length", 1),
        ("engine", "name", "other"),
        ("pilot", "min_peak_steps", 0),
        ("pilot", "cooldown_steps", 3),
        ("pilot", "seed", -1),
        ("pilot", "data", "all"),
        ("pilot", "validation_rows", 7),
        ("pilot", "budget_steps", 0),
        ("pilot", "budget_secs", 0.0),
        ("pilot", "checkpoint_every_steps", 0),
        ("pilot", "max_checkpoint_bytes", 0),
        ("gates", "strict", "yes"),
        ("gates", "waive", {"memory": 1}),
        ("checks", "skip", "finite"),
        ("tracking", "uri", 5),
        ("launcher", "num_threads", 0),
        ("launcher", "timeout_secs", 0.0),
        ("launcher", "max_restarts", -1),
    ],
)
def test_a_value_out_of_bounds_is_named(section: str, key: str, value: object) -> None:
    (wrong,) = _wrong(**{section: {key: value}})
    assert wrong.startswith(f"{section}.{key}")


@pytest.mark.parametrize(
    ("gate", "key", "value"),
    [
        ("finite", "need", "maybe"),
        ("finite", "max_skipped_frac", 1.1),
        ("movement", "max_still_frac", -0.1),
        ("early_damage", "max_loss_ratio", 1.0),
        ("validation", "num_se", 0.0),
        ("progress", "min_progress", 2.0),
        ("memory", "min_headroom_frac", math.nan),
    ],
)
def test_a_limit_of_a_gate_has_bounds(gate: str, key: str, value: object) -> None:
    assert list(_wrong(gates={gate: {key: value}})) == [f"gates.{gate}.{key}"]


def test_all_mistakes_come_at_once_with_the_nearest_key() -> None:
    tree = config_tree(
        pilot={"sed": 1, "seed": "x"}, batch={"micro_batch_size": 0}, optim={"learning_rate": None}
    )
    tree["precison"] = "fp32"
    del tree["out_dir"]
    with pytest.raises(ConfigError) as caught:
        validate(tree)
    found = {mistake.key: mistake for mistake in caught.value.mistakes}
    assert set(found) == {
        "pilot.sed",
        "pilot.seed",
        "batch.micro_batch_size",
        "optim.learning_rate",
        "precison",
        "out_dir",
    }
    assert found["precison"].remedy == "did you mean 'precision'?"
    assert found["out_dir"].rule == "must be given"
    assert str(caught.value).startswith("6 mistakes in the configuration:\n")


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"full_run": {"schedule_steps": None}}, "full_run.schedule_steps"),
        ({"full_run": {"epochs": 1.0}}, "full_run.schedule_steps"),
        ({"full_run": {"warmup_frac": 0.1}}, "full_run.warmup_steps"),
        ({"full_run": {"warmup_steps": 401}}, "full_run.warmup_steps"),
        ({"full_run": {"start_step": 400}}, "full_run.start_step"),
        ({"gates": {"waive": {"memry": "x"}}}, "gates.waive.memry"),
    ],
)
def test_keys_that_contradict_each_other(sections: dict[str, Any], key: str) -> None:
    assert list(_wrong(**sections)) == [key]


def test_the_borders_themselves_are_allowed() -> None:
    assert _wrong(full_run={"warmup_steps": 400, "start_step": 399}) == {}
    assert _wrong(pilot={"cooldown_steps": 4, "validation_rows": 8, "min_peak_steps": 1}) == {}
    assert _wrong(gates={"waive": {"memory": "a larger card"}}) == {}


def test_flat_keys_keeps_order_and_empty_sections() -> None:
    assert flat_keys({"b": {"x": 1, "y": {}}, "a": [1]}) == ["b.x", "b.y", "a"]
    assert flat_keys({}) == []


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("optim.learning_rte", "optim.learning_rate"),
        ("seed", "pilot.seed"),
        ("batch.micro_batch", "batch.micro_batch_size"),
        ("optims.learning_rate", "optim.learning_rate"),
        ("recipe.foo", ""),
        ("", ""),
    ],
)
def test_nearest(word: str, expected: str) -> None:
    keys = ["optim.learning_rate", "pilot.seed", "batch.micro_batch_size", "recipe.lora"]
    assert nearest(word, keys) == expected
    assert nearest(word, []) == ""


def test_conf_inside_the_package_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert conf_dir().name == "conf"
    package = tmp_path / "site" / "pilot"
    (package / "conf").mkdir(parents=True)
    (tmp_path / "site" / "conf").mkdir()
    monkeypatch.setattr(schema, "__file__", str(package / "config.py"))
    with pytest.raises(FileNotFoundError, match="the installation is incomplete"):
        conf_dir()
    (tmp_path / "site" / "conf" / "config.yaml").write_text("")
    assert conf_dir() == tmp_path / "site" / "conf"
    (package / "conf" / "config.yaml").write_text("")
    assert conf_dir() == package / "conf"
