"""The margin: by rising rate, up to the last arm before the first that is worse or diverged."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.arms.margin import margin_table


def row(value: str, words: str = "no difference", **changes: Any) -> dict[str, Any]:
    plain = {"variable": "optim.learning_rate", "value": value, "words": words}
    return {**plain, "status": "completed", **changes}


def test_without_a_higher_rate_there_is_no_margin() -> None:
    rows = [row("0.01"), row("0.1"), row("null"), row("0.9", variable="optim.beta2")]
    assert margin_table(0.1, rows, is_sound=True) == {
        "sentence": "no arm of a higher learning rate was measured",
        "stable_up_to": None,
        "bad_from": None,
        "word": "",
    }


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([row("0.3")], "stable up to learning_rate x 3"),
        ([row("0.3", "better")], "stable up to learning_rate x 3"),
        (
            [row("0.3", "larger loss, noise unknown")],
            "larger loss, noise unknown at learning_rate x 3",
        ),
        ([row("0.3", "not compared")], "no arm of a higher learning rate was measured"),
        ([row("0.3", "worse")], "worse at learning_rate x 3"),
        ([row("0.3", "diverged", status="stopped")], "diverged at learning_rate x 3"),
        ([row("0.3", "worse", status="decided")], "worse at learning_rate x 3"),
        (
            [row("3.0"), row("1.0", "diverged", status="stopped"), row("0.3")],
            "stable up to learning_rate x 3, diverged at learning_rate x 10",
        ),
        (
            [row("0.3", "not compared", status="lost"), row("0.6")],
            "stable up to learning_rate x 6",
        ),
    ],
)
def test_the_margin(rows: list[dict[str, Any]], sentence: str) -> None:
    found = margin_table(0.1, rows, is_sound=True)
    assert found["sentence"] == sentence
    if "stable" in sentence:
        assert found["stable_up_to"] == pytest.approx(float(sentence.split(" x ")[1].split(",")[0]))


def test_a_baseline_that_did_not_pass_has_no_margin() -> None:
    found = margin_table(0.1, [row("0.3")], is_sound=False)
    assert found["stable_up_to"] is None and found["sentence"].startswith("none: the baseline")
