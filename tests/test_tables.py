"""The tables of a judged pilot: arms and cost."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.judge import Judgement, judge
from pilot.view import PilotView
from tests.factories import LOWER, build_view, make_gates, with_arm, with_baseline


def judged(view: PilotView) -> Judgement:
    return judge(view, make_gates())


def test_arms_carry_the_paired_difference() -> None:
    baseline, lower = judged(build_view()).verdict["arms"]
    assert (baseline["name"], baseline["difference"], baseline["words"]) == ("baseline", None, "")
    assert lower["title"] == "lr x1/3" and lower["final_loss"] == 2.1
    assert lower["difference"]["value"] == pytest.approx(0.1)
    assert lower["difference"]["num_examples"] == 64 and lower["difference"]["se"] > 0
    assert lower["words"] == "larger loss, noise unknown"
    assert lower["sentence"].startswith(
        "lr x1/3 (optim.learning_rate=0.001): larger loss, noise unknown; "
    )
    assert lower["effect"]["basis"] == "validation"
    assert lower["effect"]["value"] == pytest.approx(0.1)


def test_words_of_arms_follow_the_sign() -> None:
    def words(**lower: Any) -> str:
        return str(judged(build_view(lower=lower)).verdict["arms"][1]["words"])

    assert words(final=1.9) == "smaller loss, noise unknown"
    assert words(num_examples=9) == "not compared"
    same = build_view()
    assert same.baseline is not None
    view = with_arm(same, LOWER, validations=same.baseline.validations)
    assert judged(view).verdict["arms"][1]["words"] == "no difference"


def test_an_arm_that_was_not_run() -> None:
    view = with_arm(
        build_view(), LOWER, steps=(), cooldown=(), validations=(), outcome=None, num_attempts=0,
        resources=(),
    )  # fmt: skip
    row = judged(view).verdict["arms"][1]
    assert (row["status"], row["final_loss"], row["words"]) == ("not run", None, "not compared")


def test_cost_is_itemised() -> None:
    cost = judged(build_view()).verdict["cost"]
    assert cost["num_steps"] == 2 * (48 + 8)
    assert cost["baseline_steps"] == 48 and cost["ratio"] == pytest.approx(112 / 48, rel=1e-5)
    assert cost["saved"] == []
    assert cost["secs"] == pytest.approx(2 * (1.0 + 56 * 0.05 + 0.4 + 0.1))
    assert cost["arms"][0]["secs_by_kind"] == {
        "checkpoint": 0.1, "start": 1.0, "step": 2.8, "validation": 0.4
    }  # fmt: skip


def test_a_resumed_arm_is_flagged() -> None:
    view = with_baseline(build_view(), num_attempts=2)
    result = judged(view)
    assert result.word == "GO"
    assert result.verdict["warnings"] == [
        "arm baseline needed 2 attempts: it was killed and resumed"
    ]
