"""Which arms a configuration asks for: names, order, values, doubles; the schema of conf/arms."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml

from pilot.arms.specs import (
    ABSENT,
    ArmSpec,
    arm_specs,
    find_spec,
    node_at,
    same_value,
    single_change,
    value_text,
)
from pilot.config import Config, find_mistakes, validate
from tests.trees import config_tree


def _config(optim: dict[str, Any] | None = None, **arms: Any) -> Config:
    return validate(config_tree(arms=arms, optim={"max_grad_norm": 1.0, **(optim or {})}))


def _titles(config: Config) -> list[str]:
    return [spec.title for spec in arm_specs(config)]


def _added(*changes: dict[str, Any]) -> list[ArmSpec]:
    config = _config(add=list(changes), num_replicas=0, learning_rate_scales=[], max_grad_norm=None)
    return arm_specs(config)


def test_the_default_arms_in_their_order_of_priority() -> None:
    specs = arm_specs(_config())
    assert [(s.name, s.title, s.role, s.variable, s.value, s.source) for s in specs] == [
        ("lr_x1_3", "lr x1/3", "arm", "optim.learning_rate", 0.0333333, _SCALES),
        ("clip_off", "clip off", "arm", "optim.max_grad_norm", None, "arms.max_grad_norm"),
        ("lr_x1_10", "lr x1/10", "arm", "optim.learning_rate", 0.01, _SCALES),
        ("lr_x3", "lr x3", "arm", "optim.learning_rate", 0.3, _SCALES),
        ("replica_1", "replica 1", "replica", "pilot.seed", 1000, "arms.num_replicas"),
        ("replica_2", "replica 2", "replica", "pilot.seed", 2000, "arms.num_replicas"),
    ]
    assert [spec.is_reference for spec in specs] == [True, False, False, False, False, False]
    assert {spec.no_influence for spec in specs} == {""}


_SCALES = "arms.learning_rate_scales"


def test_the_clipping_arm_clips_where_the_recipe_does_not() -> None:
    specs = arm_specs(_config({"max_grad_norm": None}, max_grad_norm=0.5))
    assert [(s.name, s.title, s.value) for s in specs if s.variable == "optim.max_grad_norm"] == [
        ("clip_on", "clip 0.5", 0.5)
    ]
    assert "clip off" not in _titles(_config(max_grad_norm=None))


@pytest.mark.parametrize(
    ("scales", "titles", "reference"),
    [
        (["3", "1/2", "1/30"], ["lr x1/2", "lr x3", "lr x1/30"], "lr x1/2"),
        ([3, 0.5, "0.5"], ["lr x1/2", "lr x3"], "lr x1/2"),
        (["10"], ["lr x10"], None),
        ([], [], None),
    ],
)
def test_the_nearest_lower_rate_is_the_reference(
    scales: list[Any], titles: list[str], reference: str | None
) -> None:
    specs = arm_specs(_config(learning_rate_scales=scales, max_grad_norm=None, num_replicas=0))
    assert [spec.title for spec in specs] == titles
    assert [spec.title for spec in specs if spec.is_reference] == [reference] * (
        reference is not None
    )


@pytest.mark.parametrize(
    ("rates", "titles", "reference"),
    [
        ([0.05], ["lr 0.05", "lr x3", "lr x1/3"], True),
        ([0.01, 0.2], ["lr x1/3", "lr x3", "lr 0.01", "lr 0.2"], True),
        ([0.2, "0.05", True, math.nan, 0, -1], ["lr x1/3", "lr x3"], True),
    ],
)
def test_an_added_rate_may_be_the_reference(
    rates: list[Any], titles: list[str], reference: bool
) -> None:
    config = _config(
        learning_rate_scales=["3", "1/3"],
        max_grad_norm=None,
        num_replicas=0,
        add=[{"optim.learning_rate": rate} for rate in rates],
    )
    specs = arm_specs(config)
    assert [spec.title for spec in specs][: len(titles)] == titles
    assert [spec.is_reference for spec in specs] == [reference] + [False] * (len(specs) - 1)


def test_an_added_rate_alone_is_the_reference() -> None:
    (clip, rate) = ({"optim.max_grad_norm": None}, {"optim.learning_rate": 1e-5})
    specs = _added(clip, rate)
    assert [(s.title, s.is_reference, s.source) for s in specs] == [
        ("lr 1e-05", True, "arms.add"),
        ("clip off", False, "arms.add"),
    ]


def test_every_change_of_the_seed_is_a_replica() -> None:
    specs = arm_specs(_config(add=[{"pilot.seed": 1000}, {"pilot.seed": 7}]))
    seeds = [(s.title, s.role, s.value, s.source) for s in specs if s.variable == "pilot.seed"]
    assert seeds == [
        ("seed 1000", "replica", 1000, "arms.add"),
        ("seed 7", "replica", 7, "arms.add"),
        ("replica 2", "replica", 2000, "arms.num_replicas"),
    ]


def test_null_for_a_key_that_is_not_there_is_an_arm() -> None:
    assert [(s.title, s.value) for s in _added({"+recipe.noise": None})] == [("noise null", None)]
    assert _added({"optim.max_grad_norm": 1.0}) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", '"a\\nb"'),
        ("a\n", '"a\\n"'),
        ("a\u2028b\x85c", '"a\\Lb\\Nc"'),
        ({"k\n": ["x\r\ny", 1e-5]}, '{? "k\\n" : ["x\\r\\ny", 1.0e-05]}'),
        ("word " * 5000 + "\n", None),
        ("word " * 5000, None),
        ({"a" * 200: "b c " * 5000}, None),
    ],
)
def test_a_value_is_on_one_line_and_can_be_read_again(value: Any, text: str | None) -> None:
    shown = value_text(value)
    assert len(shown.splitlines()) == 1 and text in (None, shown)
    assert yaml.safe_load(shown) == value


def test_a_replicas_seed_wraps_and_is_another_one() -> None:
    config = validate(config_tree(pilot={"seed": 2**32 - 1}, arms={"num_replicas": 1}))
    assert find_spec(config, "replica_1").value == 999
    with pytest.raises(KeyError):
        find_spec(config, "replica_2")


def test_added_arms_stand_between_the_rates_and_the_replicas() -> None:
    assert _titles(_config(add=[{"optim.momentum": 0.9}]))[3:6] == [
        "lr x3",
        "momentum 0.9",
        "replica 1",
    ]


@pytest.mark.parametrize(
    ("change", "name", "title"),
    [
        ({"optim.beta2": 0.95}, "beta2_0.95", "beta2 0.95"),
        ({"optim.learning_rate": 3e5}, "lr_300000", "lr 300000"),
        ({"optim.max_grad_norm": None}, "clip_off", "clip off"),
        ({"optim.max_grad_norm": 0.5}, "clip_0.5", "clip 0.5"),
        ({"full_run.schedule": "linear"}, "schedule_linear", "schedule linear"),
        ({"recipe.on": False}, "on_false", "on false"),
        ({"optim.betas": [0.8, 0.9]}, "betas_0.8_0.9", "betas [0.8, 0.9]"),
        ({"recipe.system": "Be\n  kind/.. "}, "system_Be_kind", "system Be kind/.."),
        ({"recipe.system": ""}, "system", 'system ""'),
        ({"recipe.system": "word " * 30}, "system_word_word_word_word_word_word_word", None),
        ({"+optim.amsgrad": True}, "amsgrad_true", "amsgrad true"),
        ({"optim": {"beta2": 0.95}}, "beta2_0.95", "beta2 0.95"),
    ],
)
def test_the_name_and_title_of_an_added_arm(
    change: dict[str, Any], name: str, title: str | None
) -> None:
    (spec,) = _added(change)
    assert spec.name == name
    assert spec.title == title or (title is None and len(spec.title) <= 48)
    assert (spec.role, spec.source, spec.is_reference) == ("arm", "arms.add", False)
    assert not spec.variable.startswith("+")


def test_doubles_and_the_recipes_own_value_are_no_arms() -> None:
    assert _titles(
        _config(add=[{"optim.learning_rate": 0.1}, {"full_run.schedule_steps": 400}])
    ) == (_titles(_config()))
    config = _config(add=[{"optim.learning_rate": 0.3}, {"optim.max_grad_norm": None}])
    assert _titles(config) == _titles(_config())
    assert len(_added({"optim.beta2": 1}, {"optim.beta2": 1.0}, {"optim": {"beta2": 1}})) == 1
    assert len(_added({"recipe.on": 1}, {"recipe.on": True})) == 2


def test_names_and_titles_are_unique() -> None:
    specs = _added(
        {"recipe.decay": 0.1},
        {"optim.decay": 0.1},
        {"recipe.decay": 0.10000000001},
        {"recipe.baseline": "x"},
        {"recipe.system": "same start " * 9 + "a"},
        {"recipe.system": "same start " * 9 + "b"},
        {"recipe.system": "same start " * 9 + "c"},
    )
    assert [spec.name for spec in specs[:4]] == [
        "decay_0.1",
        "decay_0.1_2",
        "decay_0.1_3",
        "baseline_x",
    ]
    assert [spec.title for spec in specs[:3]] == [
        "decay 0.1",
        "optim.decay 0.1",
        "recipe.decay 0.1",
    ]
    assert specs[-1].title.endswith("... #2")
    assert len({spec.name for spec in specs}) == len({spec.title for spec in specs}) == len(specs)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("tracking.uri", "an arm does not read tracking.*: identical"),
        ("launcher.num_threads", "an arm does not read launcher.*: identical"),
        ("checks.skip", "an arm does not read checks.*: identical"),
        ("recipe.name", ""),
        ("batch.micro_batch_size", ""),
    ],
)
def test_an_arm_that_is_provably_the_baseline_says_why(key: str, reason: str) -> None:
    (spec,) = _added({key: "other"})
    assert spec.no_influence == reason


def test_a_nested_change_is_followed_as_far_as_there_is_a_section() -> None:
    tree = {"optim": {"beta2": 0.9, "x": {"y": 1}}, "recipe": {"lora": None, "none": {}}}
    assert single_change({"optim": {"beta2": 0.95}}, tree) == ("optim.beta2", 0.95)
    assert single_change({"optim": {"x": {"y": 2}}}, tree) == ("optim.x.y", 2)
    assert single_change({"optim.x": {"+z": 2}}, tree) == ("optim.x.z", 2)
    assert single_change({"recipe.lora": {"rank": 8}}, tree) == ("recipe.lora", {"rank": 8})
    assert single_change({"recipe": {"lora": {"rank": 8}}}, tree) == ("recipe.lora", {"rank": 8})
    assert single_change({"recipe.none": {"a": 1}}, tree) == ("recipe.none", {"a": 1})
    assert single_change({"optim": {"beta2": 1, "x": 2}}, tree) == ("optim", {"beta2": 1, "x": 2})
    assert single_change({"+optim.new": 1}, tree) == ("optim.new", 1)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (False, 0, False),
        (True, True, True),
        (None, 0, False),
        (None, None, True),
        (math.nan, math.nan, True),
        (math.inf, math.inf, True),
        ([1, math.nan], (1.0, math.nan), True),
        ([1], [True], False),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"b": 1}, False),
        ("1", 1, False),
        (ABSENT, None, False),
    ],
)
def test_same_value(one: Any, other: Any, same: bool) -> None:
    assert same_value(one, other) is same
    assert same_value(other, one) is same


def test_nodes_and_texts() -> None:
    tree = {"a": {"b": None, "c": [1]}}
    assert node_at(tree, "a.b") is None
    assert node_at(tree, "a.c.0") is ABSENT
    assert node_at(tree, "a.b.c") is ABSENT
    assert [value_text(v) for v in (None, 1e-5, 0.5, "x", "a: b", [1, None], {"a": 1}, True)] == [
        "null", "1.0e-05", "0.5", "x", "'a: b'", "[1, null]", "{a: 1}", "true",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arms", "key", "rule"),
    [
        ({"learning_rate_scales": ["1"]}, f"{_SCALES}.0", "must be above 0 and not 1"),
        ({"learning_rate_scales": ["1/3", "2/2"]}, f"{_SCALES}.1", "must be above 0 and not 1"),
        ({"learning_rate_scales": ["0"]}, f"{_SCALES}.0", "must be above 0"),
        ({"learning_rate_scales": [-0.1]}, f"{_SCALES}.0", "must be above 0"),
        ({"learning_rate_scales": ["1/0"]}, f"{_SCALES}.0", "must be a number or a fraction"),
        ({"learning_rate_scales": [math.inf]}, f"{_SCALES}.0", "must be a number or a fraction"),
        ({"learning_rate_scales": [math.nan]}, f"{_SCALES}.0", "must be a number or a fraction"),
        ({"learning_rate_scales": ["1e999"]}, f"{_SCALES}.0", "must be a number or a fraction"),
        ({"learning_rate_scales": [True]}, f"{_SCALES}.0", "must be a valid string"),
        ({"learning_rate_scales": "1/3"}, _SCALES, "must be a valid list"),
        ({"max_grad_norm": 0.0}, "arms.max_grad_norm", "must be greater than 0"),
        ({"num_replicas": -1}, "arms.num_replicas", "must be greater than or equal to 0"),
        ({"add": {"optim.beta2": 1}}, "arms.add", "must be a valid list"),
        ({"add": [{}]}, "arms.add.0", "must be one key and its value"),
        ({"add": [{"a": 1, "b": 2}]}, "arms.add.0", "must be one key and its value"),
        ({"add": ["optim.beta2"]}, "arms.add.0", "must be a valid dictionary"),
        ({"when": "never"}, "arms.when", "must be 'always' or 'if_not_go'"),
        ({"error_rate": 0.5}, "arms.error_rate", "must be less than 0.5"),
        ({"min_effect_frac": math.nan}, "arms.min_effect_frac", "must be"),
        ({"budget_secs": 0}, "arms.budget_secs", "must be greater than 0"),
        ({"sweep": 1}, "arms.sweep", "no such key"),
    ],
)
def test_wrong_settings_of_the_arms_are_named(arms: dict[str, Any], key: str, rule: str) -> None:
    (mistake,), config = find_mistakes(config_tree(arms=arms))
    assert config is None
    assert mistake.key == key
    assert mistake.rule.startswith(rule)
