from __future__ import annotations

import math
from typing import Any

import pytest

from pilot.report import arm_text
from tests.report.parts import CLIP, SEED, arm_row, effect


@pytest.mark.parametrize(
    ("changes", "start", "text"),
    [
        ({}, 0, "worse"),
        ({"status": "decided", "num_steps": 20}, 0, "worse, ended at 20"),
        ({"status": "decided", "num_steps": 20}, 100, "worse, ended at 120"),
        ({"status": "decided", "effect": effect(step=18)}, 100, "worse, ended at 18"),
        ({"status": "stopped", "num_steps": 30, "effect": effect(word="diverged")}, 0,
         "diverged at 30"),
        ({"status": "stopped", "num_steps": 30, "effect": effect(word="not compared")}, 0,
         "stopped at 30"),
        ({"status": "exception", "num_steps": 3, "effect": None, "words": ""}, 0, "exception at 3"),
        ({"status": "out_of_memory", "num_steps": 0, "effect": None, "words": ""}, 0,
         "out of memory"),
        ({"status": "lost", "num_steps": 5, "effect": None, "words": "not compared"}, 0,
         "lost at 5"),
        ({"status": "not run", "effect": effect(word="not compared")}, 0, "not run"),
        ({"status": "identical", "effect": effect(word="no difference")}, 0, "identical"),
        ({"effect": None, "words": "larger loss, noise unknown"}, 0, "larger loss, noise unknown"),
        ({"effect": None, "words": ""}, 0, "completed"),
        ({"role": "baseline", "effect": None, "words": ""}, 0, "reference"),
        ({"role": "baseline", "status": "stopped", "effect": None, "words": ""}, 0,
         "stopped at 48"),
    ],
)  # fmt: skip
def test_the_result_is_a_word_and_where_it_ended(
    changes: dict[str, Any], start: int, text: str
) -> None:
    assert arm_text.result(arm_row(**changes), start) == text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "+0.166 ± 0.0312"),
        ({"effect": effect(value=-0.05, half_width=0.02)}, "-0.05 ± 0.02"),
        ({"effect": effect(value=0.0, half_width=0.0)}, "0 ± 0"),
        ({"effect": effect(value=0.0, half_width=0.0, basis="identical")}, "0"),
        ({"effect": effect(basis="step loss")}, "+0.166 ± 0.0312 *"),
        ({"effect": effect(half_width=None)}, "+0.166 (SE 0.0037)"),
        ({"effect": effect(half_width=math.nan)}, "+0.166 (SE 0.0037)"),
        ({"effect": None}, "+0.166 (SE 0.0037)"),
        ({"effect": None, "difference": {"value": math.nan, "se": math.nan}}, "nan (SE nan)"),
        ({"effect": effect(half_width=None), "difference": None}, "+0.166"),
        ({"effect": effect(value=None, half_width=None), "difference": None}, "-"),
        ({"effect": None, "difference": None}, "-"),
    ],
)
def test_a_difference_carries_its_interval(changes: dict[str, Any], text: str) -> None:
    assert arm_text.difference(arm_row(**changes)) == text


@pytest.mark.parametrize(
    ("changes", "long", "short"),
    [
        ({}, "optim.learning_rate 0.003 -> 0.009", "0.003 -> 0.009"),
        ({"title": "slow"}, "optim.learning_rate 0.003 -> 0.009", "learning_rate 0.003 -> 0.009"),
        ({"baseline_value": ""}, "optim.learning_rate 0.009", "learning_rate 0.009"),
        ({"variable": CLIP, "title": "clip off", "value": "null", "baseline_value": "1.0"},
         "optim.max_grad_norm 1.0 -> null", "1.0 -> null"),
        ({"variable": SEED, "title": "replica 1", "value": "1000", "baseline_value": "0"},
         "pilot.seed 0 -> 1000", "seed 0 -> 1000"),
        ({"variable": "optim.beta2", "title": "beta2 0.95", "value": "0.95",
          "baseline_value": "0.999"}, "optim.beta2 0.999 -> 0.95", "0.999 -> 0.95"),
        ({"variable": "", "role": "baseline"}, "the recipe", "the recipe"),
        ({"variable": ""}, "-", "-"),
    ],
)  # fmt: skip
def test_what_changed_in_full_and_in_short(changes: dict[str, Any], long: str, short: str) -> None:
    assert arm_text.changed(arm_row(**changes)) == long
    assert arm_text.changed(arm_row(**changes), short=True) == short


def test_rows_of_old_folders_lack_keys() -> None:
    old = {"name": "lr_x1_3", "status": "completed", "num_steps": 48, "num_cooldown_steps": 8}
    assert arm_text.title(old) == "lr x1 3"
    assert arm_text.own_steps(old) == 56
    assert arm_text.own_steps(arm_row(num_own_steps=0)) == 0
    assert arm_text.reason(old) == "" and arm_text.difference(old) == "-"
    (cells,) = arm_text.arm_texts({"arms": [old]})
    assert cells == ("lr x1 3", "-", "completed", "-", "56")
    assert arm_text.arm_texts({}) == []


def test_reasons_are_for_arms_without_a_result_and_harmless() -> None:
    row = arm_row(status="exception", reason="bad\n\x1b[31m[b]row")
    assert arm_text.reason(row) == "bad [b]row"
    assert arm_text.reason(arm_row(status="decided", reason="worse")) == ""
    assert arm_text.reason(arm_row(reason="x")) == ""


def test_one_level_is_named_and_two_are_not() -> None:
    other = arm_row(effect=effect(level=0.9))
    assert arm_text.level_text([arm_row(), arm_row()]) == "95 %"
    assert arm_text.level_text([arm_row(), other]) == ""
    assert arm_text.level_text([arm_row(effect=effect(half_width=None))]) == ""
    assert arm_text.level_text([]) == ""
    assert arm_text.has_footnote([arm_row(), arm_row(effect=effect(basis="step loss"))])
    assert not arm_text.has_footnote([arm_row()])
