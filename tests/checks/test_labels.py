from __future__ import annotations

from typing import Any

import pytest

from pilot.checks.labels import check
from pilot.checks.registry import CheckResult
from tests.factories import build_view, make_audit, make_gates


def run(*audits: dict[str, Any]) -> CheckResult:
    view = build_view(survey={"label_audit": list(audits)})
    assert view.baseline is not None
    return check(view, make_gates(), view.baseline)


def test_clean_sets_pass_with_their_counts() -> None:
    result = run(make_audit("train", 480, num_rows_checked=200), make_audit("held_out", 64))
    assert result.measured and result.findings == ()
    assert result.sentence == "264 of 544 rows in 2 sets checked"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("bad_input_ids", "an input id outside the vocabulary of 2048"),
        ("bad_label_ids", "a label outside the vocabulary of 2048"),
        ("too_long", "longer than the model's 512 positions"),
    ],
)
def test_one_impossible_row_fails_and_is_named(key: str, words: str) -> None:
    result = run(
        make_audit("train", 480), make_audit("held_out", 64, **{f"num_{key}": 1, key: [9]})
    )
    (finding,) = result.findings
    assert (finding.severity, finding.category) == ("fail", "data")
    assert finding.sentence.startswith("held_out: 1 of 64 checked rows ")
    assert words in finding.sentence and finding.sentence.endswith("(row 9)")
    assert result.sentence == finding.sentence


def test_more_rows_than_are_listed() -> None:
    result = run(make_audit("train", 480, num_too_long=30, too_long=list(range(20))))
    assert "(rows 0, 1, 2, 3, 4, 5, 6, 7 and 22 more)" in result.sentence


def test_some_rows_without_labels_warn_and_all_fail() -> None:
    some = run(make_audit("train", 480, num_no_labels=479, no_labels=[1]))
    assert [f.severity for f in some.findings] == ["warn"]
    every = run(make_audit("train", 480, num_no_labels=480, no_labels=[1]))
    assert [f.severity for f in every.findings] == ["fail"] and "all of them" in every.sentence
    checked = run(make_audit("train", 480, num_rows_checked=5, num_no_labels=5, no_labels=[1]))
    assert [f.severity for f in checked.findings] == ["fail"]


def test_failures_come_first() -> None:
    result = run(
        make_audit("train", 480, num_no_labels=3, no_labels=[1, 2, 3]),
        make_audit("held_out", 64, num_too_long=1, too_long=[2]),
    )
    assert [f.severity for f in result.findings] == ["fail", "warn"]
    assert result.sentence.startswith("held_out")


def test_unknown_sizes_are_said_and_not_guessed() -> None:
    audit = make_audit("train", 480, num_bad_input_ids=1, bad_input_ids=[3])
    view = build_view(survey={"label_audit": [audit], "vocab_size": None})
    assert view.baseline is not None
    assert "the vocabulary (row 3)" in check(view, make_gates(), view.baseline).sentence


def test_without_checked_rows_nothing_is_measured() -> None:
    assert not run().measured
    assert not run(make_audit("train", 480, num_rows_checked=0)).measured
    view = build_view()
    survey = {k: v for k, v in view.survey.items() if k != "label_audit"}
    import dataclasses

    view = dataclasses.replace(view, survey=survey)
    assert view.baseline is not None
    assert not check(view, make_gates(), view.baseline).measured
