"""Lists of values: what Hydra's notation means here, and that Hydra reads back what is written."""

from __future__ import annotations

from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from pilot.cli.overrides import Sorted, sort_overrides
from pilot.cli.sweeps import MAX_VALUES, Listed, add_override, quoted, read_list
from pilot.errors import Mistake

GROUPS = {"recipe": ["a", "b"], "optim": ["adamw", "sgd"], "arms": ["default", "star", "mine"]}


def _read(text: str) -> Listed | Mistake:
    return read_list(OverridesParser.create().parse_override(text))


def _sort(*given: str, multirun: bool = True) -> Sorted:
    return sort_overrides(["+recipe=a", *given], GROUPS, multirun=multirun)


def _wrong(*given: str, multirun: bool = True) -> dict[str, Mistake]:
    return {mistake.key: mistake for mistake in _sort(*given, multirun=multirun).mistakes}


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("optim.learning_rate=1e-5,3e-5", [{"optim.learning_rate": v} for v in (1e-5, 3e-5)]),
        ("optim.max_grad_norm=null,1.0", [{"optim.max_grad_norm": v} for v in (None, 1.0)]),
        ("a.b='x, y',\"z\",w", [{"a.b": v} for v in ("x, y", "z", "w")]),
        ("a.b=true,1", [{"a.b": True}, {"a.b": 1}]),
        ("a.b=[1,'x'],[2]", [{"a.b": [1, "x"]}, {"a.b": [2]}]),
        ("a.b={c: 'x'},null", [{"a.b": {"c": "x"}}, {"a.b": None}]),
        ("a.b=choice(3)", [{"a.b": 3}]),
        ("a.b=sort(3,1,2)", [{"a.b": 1}, {"a.b": 2}, {"a.b": 3}]),
        ("a.b=shuffle(1,2,3)", [{"a.b": 1}, {"a.b": 2}, {"a.b": 3}]),
        ("a.b=range(1,4)", [{"a.b": 1}, {"a.b": 2}, {"a.b": 3}]),
        ("a.b=range(3,0,-2)", [{"a.b": 3}, {"a.b": 1}]),
        ("a.b=range(0.1,0.4,0.1)", [{"a.b": 0.1}, {"a.b": 0.2}, {"a.b": 0.3}]),
        ("a.b=range(0,1,0.5)", [{"a.b": 0.0}, {"a.b": 0.5}]),
        ("+a.b=1,2", [{"+a.b": 1}, {"+a.b": 2}]),
        ("++a.b=1,2", [{"+a.b": 1}, {"+a.b": 2}]),
    ],
)
def test_each_value_is_a_change(text: str, changes: list[dict[str, Any]]) -> None:
    found = _read(text)
    assert isinstance(found, Listed)
    assert found.key == "a.b" or text.startswith("optim")
    assert found.changes == changes
    assert [type(v) for change in found.changes for v in change.values()] == [
        type(v) for change in changes for v in change.values()
    ]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a.b=interval(0,1)", "must list its values"),
        ("a.b=glob(*)", "must list its values"),
        ("a.b=range(1,5,0)", "must list its values"),
        ("a.b=range(5,1)", f"must list 1 to {MAX_VALUES} values: each one is an arm"),
        ("a.b=range(0,1000000000)", f"must list 1 to {MAX_VALUES} values: each one is an arm"),
    ],
)
def test_what_lists_no_values_is_a_mistake(text: str, rule: str) -> None:
    found = _read(text)
    assert isinstance(found, Mistake)
    assert (found.key, found.rule) == ("a.b", rule)
    assert "KEY=VALUE,VALUE" in found.remedy


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [{"optim.beta2": 0.95}, {"+optim.amsgrad": True}, {"optim.max_grad_norm": None}],
        [{"a": 1e-5}, {"a": 1e20}, {"a": -3}, {"a": float("inf")}, {"a": float("nan")}],
        [{"a": "null"}, {"a": "1"}, {"a": "true"}, {"a": ""}, {"a": " x "}, {"a": "${optim.eps}"}],
        [{"a": "it's"}, {"a": 'a "b"'}, {"a": "back\\"}, {"a": "x\\'y"}, {"a": "{=}[1],:"}],
        [{"a": [1, [None, {"b": "c d"}]]}, {"optim": {"beta2": 0.9}}, {"a": {"x y": 1, "z:,{": 2}}],
        [{"a": "naïve ∑\nsecond line"}],
    ],
)
def test_hydra_reads_back_what_is_written(changes: list[dict[str, Any]]) -> None:
    override = OverridesParser.create().parse_override(add_override(changes))
    assert override.key_or_group == "arms.add"
    assert repr(override.value()) == repr(changes)


@pytest.mark.parametrize("key", ["it's", 'a"b', "1", "null"])
def test_a_key_that_hydras_grammar_cannot_say_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="arms.add="):
        add_override([{"recipe.x": {key: 1}}])


@pytest.mark.parametrize(
    "text", ["plain", "it's", "a b,c", "back\\slash", "x\\'y", "end\\", "{=}[1]"]
)
def test_quoted_text_is_read_back_by_hydra(text: str) -> None:
    override = OverridesParser.create().parse_override(f"out_dir={quoted(text)}")
    assert override.value() == text


def test_lists_are_sorted_out_and_the_group_becomes_star() -> None:
    parts = _sort("optim.learning_rate=1,2", "pilot.seed=3", "optim.eps=range(1,3)")
    assert parts.mistakes == ()
    assert [(item.key, item.values) for item in parts.listed] == [
        ("optim.learning_rate", (1, 2)),
        ("optim.eps", (1, 2)),
    ]
    assert [override.input_line for override in parts.values] == ["pilot.seed=3"]
    assert parts.choices["arms"].input_line == "arms=star"
    assert _sort("a.b=1,2", "arms=mine").choices["arms"].input_line == "arms=mine"
    assert "arms" not in _sort(multirun=False).choices


def test_a_list_needs_the_flag_and_the_flag_a_list() -> None:
    wrong = _wrong("a.b=1,2", multirun=False)
    assert wrong["a.b"].rule == "must be one value"
    assert wrong["a.b"].remedy == "add -m: each value is an arm; or quote the comma"
    assert _wrong("a.b=1")["-m"].rule == "needs a list of values"
    assert "-m" not in _wrong("a.b=interval(0,1)")  # one mistake is enough
    assert "-m" not in _wrong("optim=adamw,sgd")


@pytest.mark.parametrize("multirun", [True, False])
def test_a_group_cannot_be_listed(multirun: bool) -> None:
    wrong = _wrong("optim=adamw,sgd", multirun=multirun)
    assert list(wrong) == ["optim"]
    assert "a group changes several keys" in wrong["optim"].rule
    assert wrong["optim"].remedy.startswith("run one pilot per optim (optim=NAME)")
    (mistake,) = sort_overrides(["+recipe=a,b"], GROUPS, multirun=multirun).mistakes
    assert mistake.key == "recipe"
    assert mistake.remedy.startswith("run one pilot per recipe (+recipe=NAME)")


@pytest.mark.parametrize("text", ["hydra.sweeper.params={a: 1}", "hydra.launcher.n_jobs=2"])
def test_hydras_own_sweeps_are_refused(text: str) -> None:
    (mistake,) = _sort(text, multirun=False).mistakes
    assert mistake.rule == "is set by pilot"
    (mistake,) = _sort("hydra.verbose=a,b", multirun=False).mistakes
    assert mistake.rule == "must be one value"
