"""Steps with a loss and without any gradient."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pilot.checks.registry import run_check
from pilot.checks.silent import NAME
from tests.factories import build_view, make_gates, make_step, with_baseline

VIEW = build_view()


def judged(norms: list[float], objective: str = "lm", **values: Any) -> tuple[str, str]:
    """The worst severity, and the sentence, of steps with these gradient norms."""
    steps = tuple(make_step(k, grad_norm=norm, **values) for k, norm in enumerate(norms, start=1))
    view = with_baseline(replace(VIEW, survey={**VIEW.survey, "objective": objective}), steps=steps)
    result = run_check(NAME, view, make_gates())
    assert result.measured
    return next((f.severity for f in result.findings), ""), result.sentence


@pytest.mark.parametrize(
    ("norms", "severity", "words"),
    [
        ([1.0] * 40, "", "every step with a loss had a gradient"),
        ([1.0] * 12 + [0.0] * 28, "fail", "from step 13 to the end (28 steps)"),
        ([0.0] * 40, "fail", "from step 1 to the end (40 steps)"),
        ([0.0] * 3, "fail", "from step 1 to the end (3 steps)"),
        ([1.0] * 33 + [0.0] * 7, "warn", "at 7 steps of 40, first at step 34"),
        ([0.0] * 20 + [1.0] * 20, "warn", "at 20 steps of 40, first at step 1"),
        ([1.0, 0.0] * 20, "warn", "at 20 steps of 40, first at step 2"),
        ([math.nan] * 40, "", "every step"),
        ([math.inf] * 40, "", "every step"),
        ([5e-324] * 40, "", "every step"),
    ],
)
def test_where_the_gradient_is_cut_off(norms: list[float], severity: str, words: str) -> None:
    found, sentence = judged(norms)
    assert found == severity and words in sentence


@pytest.mark.parametrize(
    "values",
    [{"loss": 0.0}, {"num_supervised_tokens": 0}, {"step_skipped": True}, {"finite_loss": False}],
    ids=["no loss", "no supervised token", "skipped", "not finite"],
)
def test_steps_that_have_no_gradient_for_a_reason(values: dict[str, Any]) -> None:
    assert judged([0.0] * 40, **values)[0] == ""


def test_equal_rewards_have_none_either() -> None:
    assert judged([0.0] * 40, objective="rl")[0] == "warn"


def test_an_engine_that_hides_gradients_is_not_judged() -> None:
    view = with_baseline(VIEW, steps=tuple(make_step(k, grad_norm=0.0) for k in range(1, 30)))
    view = replace(view, survey={**view.survey, "not_measured": ["under deepspeed: gradients"]})
    assert not run_check(NAME, view, make_gates()).measured


def test_without_a_step_nothing_was_measured() -> None:
    view = with_baseline(VIEW, steps=())
    assert not run_check(NAME, view, make_gates()).measured
