from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pilot.checks.coverage import check
from pilot.checks.coverage_table import coverage_table
from pilot.checks.registry import CheckResult, absent_arm
from pilot.records import Outcome
from pilot.view import PilotView, RowTable
from tests.factories import build_view, make_gates, make_step, with_baseline


def run(view: PilotView) -> CheckResult:
    return check(view, make_gates(), view.baseline or absent_arm(view))


def gaps(view: PilotView) -> list[tuple[str, str]]:
    return [(f.severity, f.sentence) for f in run(view).findings]


def with_rows(view: PilotView, **rows: tuple[int, ...]) -> PilotView:
    """Every step draws the same rows."""
    assert view.baseline is not None
    steps = tuple(dataclasses.replace(r, row_ids=rows["ids"]) for r in view.baseline.steps)
    return with_baseline(view, steps=steps)


def test_the_healthy_pilot_is_covered() -> None:
    result = run(build_view())
    assert result.measured and result.findings == ()
    assert result.sentence == (
        "48 steps and 8 of cool-down, 4 validations, 3 of 3 sources, longest row 200 tokens"
    )


def test_missing_steps_name_their_segment() -> None:
    view = build_view()
    assert view.baseline is not None
    steps = view.baseline.steps
    lost = with_baseline(view, steps=steps[:11] + steps[12:])
    assert ("undetermined", "warm-up: 11 of 12 steps trained") in gaps(lost)
    lost = with_baseline(view, steps=steps[:-1])
    assert gaps(lost) == [("undetermined", "peak: 35 of 36 steps trained")]
    lost = with_baseline(view, cooldown=view.baseline.cooldown[:-1])
    assert gaps(lost) == [("undetermined", "cool-down: 7 of 8 steps trained")]


def test_cool_down_steps_do_not_count_for_the_run() -> None:
    view = build_view()
    assert view.baseline is not None
    moved = (*view.baseline.steps, *view.baseline.cooldown)
    assert gaps(with_baseline(view, steps=moved, cooldown=())) == [
        ("undetermined", "cool-down: 0 of 8 steps trained")
    ]


@pytest.mark.parametrize("at", ["before", "warmup_end", "peak_end", "cooldown_end"])
def test_every_planned_validation_is_needed(at: str) -> None:
    view = build_view()
    assert view.baseline is not None
    kept = tuple(v for v in view.baseline.validations if v.at != at or not v.primary)
    words = at.replace("_", " ")
    assert gaps(with_baseline(view, validations=kept)) == [
        ("undetermined", f"1 planned validation missing: {words}")
    ]


def test_a_validation_at_another_step_does_not_count() -> None:
    view = build_view()
    assert view.baseline is not None
    moved = tuple(
        dataclasses.replace(v, step=47) if v.at == "peak_end" else v
        for v in view.baseline.validations
    )
    assert "missing: peak end" in run(with_baseline(view, validations=moved)).sentence


def test_a_source_never_seen_is_undetermined_or_a_warning_under_prefix() -> None:
    ids = (0, 300)  # code (the longest) and prose, no rare row
    expected = "1 source never seen: rare"
    assert gaps(with_rows(build_view(), ids=ids)) == [("undetermined", expected)]
    prefix = with_rows(build_view(config={"pilot__data": "prefix"}), ids=ids)
    assert gaps(prefix) == [("warn", expected)]


def test_the_longest_rows_never_seen() -> None:
    view = build_view()
    ids = (10, 300, 479)
    seen = int(view.rows.num_tokens[list(ids)].max())
    expected = f"the longest rows (200 tokens) were never seen; longest seen: {seen}"
    assert gaps(with_rows(view, ids=ids)) == [("undetermined", expected)]
    prefix = with_rows(build_view(config={"pilot__data": "prefix"}), ids=ids)
    assert gaps(prefix) == [("warn", expected)]
    assert gaps(with_rows(view, ids=(4, 300, 479))) == []  # any of the longest will do


def test_unknown_row_ids_are_undetermined() -> None:
    view = with_rows(build_view(), ids=(0, 300, 479, 480, -1))
    assert gaps(view) == [
        ("undetermined", "96 drawn row ids not in the row table: the data changed since")
    ]


@pytest.mark.parametrize("status", ["stopped", "exception", "out_of_memory"])
def test_a_run_that_ended_by_itself_is_only_said_to_have_ended(status: str) -> None:
    outcome = Outcome(status=status, last_step=20)
    view = build_view(baseline={"last_step": 20, "outcome": outcome})
    assert gaps(view) == [
        ("undetermined", "the run ended by itself after 20 of 48 steps: not judged further")
    ]


def test_a_lost_or_absent_run_is_not_covered() -> None:
    lost = build_view(baseline={"last_step": 20, "outcome": None})
    assert ("undetermined", "peak: 8 of 36 steps trained") in gaps(lost)
    view = build_view()
    absent = check(view, make_gates(), absent_arm(view))
    assert {f.severity for f in absent.findings} == {"undetermined"}
    assert "warm-up: 0 of 12 steps trained" in absent.sentence


def test_the_table_counts_draws_and_rows() -> None:
    rows = RowTable(
        num_tokens=np.array([10, 20, 30, 40]),
        num_supervised_tokens=np.array([1, 1, 1, 1]),
        source=np.array([0, 0, 0, 1]),
        source_names=("a", "b", "unused"),
    )
    view = dataclasses.replace(build_view(), rows=rows)
    view = with_baseline(
        view, steps=(make_step(1, row_ids=(0, 1)), make_step(2, row_ids=(0, 2, 0)))
    )
    assert view.baseline is not None
    table = coverage_table(view, view.baseline)
    assert (table["num_rows_drawn"], table["num_rows_seen"], table["num_rows"]) == (5, 3, 4)
    a, b, unused = table["sources"]
    assert (a["planned_share"], a["seen_share"]) == (0.75, 1.0)
    assert (a["num_rows"], a["num_rows_drawn"], a["num_rows_seen"]) == (3, 5, 3)
    assert (b["planned_share"], b["seen_share"], b["num_rows_seen"]) == (0.25, 0.0, 0)
    assert unused["num_rows"] == 0
    assert table["lengths"]["planned"] == {"p50": 20, "p90": 40, "p99": 40, "max": 40}
    assert table["lengths"]["seen"] == {"p50": 10, "p90": 30, "p99": 30, "max": 30}
    assert table["extremes"] == {
        "longest_tokens": 40,
        "longest_tokens_seen": 30,
        "longest_seen": False,
        "sources_not_seen": ["b"],
    }


def test_the_table_of_nothing() -> None:
    empty = np.array([], dtype=np.int64)
    rows = RowTable(
        num_tokens=empty, num_supervised_tokens=empty, source=empty, source_names=("a",)
    )
    view = dataclasses.replace(build_view(), rows=rows)
    table = coverage_table(view, absent_arm(view))
    assert table["sources"][0]["planned_share"] is None
    assert table["lengths"]["seen"]["p50"] is None
    assert table["extremes"]["longest_seen"] is False


def test_a_run_without_cool_down_has_no_cool_down_segment() -> None:
    view = build_view(config={"full_run__schedule": "linear", "full_run__schedule_steps": 40})
    assert view.baseline is not None
    table = coverage_table(view, view.baseline)
    assert [(s["segment"], s["num_trained"]) for s in table["segments"]][-1][0] != "cool-down"
    assert all(s["num_trained"] == s["num_steps"] for s in table["segments"])


def test_rows_whose_length_was_not_measured_are_no_lengths() -> None:
    """The longest row that was drawn may be one of them: the step's own number counts then."""
    view = build_view()
    lengths = np.full_like(view.rows.num_tokens, -1)
    lengths[:3] = (500, 40, 30)
    rows = dataclasses.replace(view.rows, num_tokens=lengths)
    view = with_rows(dataclasses.replace(view, rows=rows), ids=(1, 2, 3))
    assert view.baseline is not None
    for longest, seen in ((60, False), (500, True)):
        steps = [dataclasses.replace(r, longest_tokens=longest) for r in view.baseline.steps]
        arm = with_baseline(view, steps=tuple(steps)).baseline
        assert arm is not None
        table = coverage_table(view, arm)
        assert table["lengths"]["seen"]["p50"] == 30 and table["lengths"]["planned"]["max"] == 500
        assert table["extremes"]["longest_seen"] is seen
        assert table["extremes"]["longest_tokens_seen"] == longest
