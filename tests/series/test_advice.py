"""The decision table covers every kind."""

from __future__ import annotations

import pytest

from pilot.series import advice
from pilot.series.advice import TABLE
from pilot.series.types import KINDS


def test_every_kind_has_a_row_of_three_sentences() -> None:
    assert set(TABLE) == set(KINDS)
    for kind in KINDS:
        row = advice(kind)
        assert row.look_first and row.test and row.then


def test_the_rows_of_the_table() -> None:
    assert advice("single_spike").look_first.startswith("the batch")
    assert "kept" in advice("single_spike").then
    assert "optimizer state" in advice("never_recovers").then
    assert advice("nonfinite_first_step").test == "the single batch in FP32"


def test_an_unknown_kind_raises() -> None:
    with pytest.raises(KeyError):
        advice("gremlins")
