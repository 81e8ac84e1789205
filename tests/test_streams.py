"""A pilot of a stream as files: the plan, the coverage, what is said of a resumed one."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pilot.checks.coverage_table import coverage_table
from pilot.config import validate
from pilot.errors import PlanRefused
from pilot.judge import judge
from pilot.plan import make_plan
from pilot.records import Evidence
from pilot.report.markdown import render
from pilot.view import PilotView
from tests.factories import build_view, make_gates, make_survey
from tests.factory_parts import config_tree

STREAM = {"num_train_rows": None, "rows_come_again": True, "order_audit": {}, "source_names": []}


def stream_view(**survey: Any) -> PilotView:
    """The healthy pilot with the rows of a stream: no ids, sources as they came."""
    view = build_view()
    changed = make_survey(**{**STREAM, **survey})
    plan = make_plan(validate(config_tree()), changed)
    arms = {
        name: dataclasses.replace(
            arm,
            steps=tuple(
                dataclasses.replace(r, row_ids=(), source_counts={"a": 1, "b": 7})
                for r in arm.steps
            ),
        )
        for name, arm in view.arms.items()
    }
    rows = dataclasses.replace(
        view.rows,
        num_tokens=view.rows.num_tokens[:0],
        num_supervised_tokens=view.rows.num_supervised_tokens[:0],
        source=view.rows.source[:0],
        source_names=(),
    )
    return dataclasses.replace(view, survey=changed, plan=plan, arms=arms, rows=rows)


def test_a_healthy_stream_is_go_and_says_what_it_does_not_know() -> None:
    view = stream_view()
    found = judge(view, make_gates())
    assert found.word == "GO", found.verdict["why"]
    text = " ".join(found.verdict["not_measured"])
    for words in ("it is a stream", "behind its first rows", "check order"):
        assert words in text
    assert "do not come again" not in text
    assert "how many there are is not known" in render(found.verdict, found.result)


def test_coverage_counts_what_came() -> None:
    view = stream_view()
    assert view.baseline is not None
    table = coverage_table(view, view.baseline)
    count = len(view.baseline.steps)
    assert table["num_rows"] is None and table["num_rows_drawn"] == count * view.plan.rows_per_step
    assert [(s["source"], s["num_rows_drawn"]) for s in table["sources"]] == [
        ("a", count),
        ("b", 7 * count),
    ]
    assert [s["seen_share"] for s in table["sources"]] == [0.125, 0.875]
    empty = coverage_table(view, dataclasses.replace(view.baseline, steps=()))
    assert empty["num_rows_drawn"] == 0 and empty["lengths"]["seen"]["max"] is None


def test_a_stream_that_stops_early_is_not_covered() -> None:
    view = stream_view()
    assert view.baseline is not None
    short = dataclasses.replace(view.baseline, steps=view.baseline.steps[:-1])
    found = judge(dataclasses.replace(view, arms={**view.arms, "baseline": short}), make_gates())
    assert found.word == "INCONCLUSIVE"


def test_rows_that_do_not_come_again_leave_no_extension() -> None:
    config = validate(config_tree())
    assert make_plan(config, make_survey(**STREAM)).extension_steps > 0
    plan = make_plan(config, make_survey(**{**STREAM, "rows_come_again": False}))
    assert plan.extension_steps == 0
    assert any("do not come again" in line for line in plan.not_measured)


def test_a_cool_down_behind_the_end_of_a_trainers_loop_is_refused() -> None:
    plan = make_plan(validate(config_tree()), make_survey(**STREAM))
    steps = plan.stop_step + plan.cooldown_steps - 1
    short = validate(config_tree(full_run__schedule_steps=steps, full_run__schedule="constant"))
    survey = make_survey(**STREAM)
    assert make_plan(short, survey).cooldown_steps > 0  # the native engine draws further
    with pytest.raises(PlanRefused, match="cannot be drawn behind it"):
        make_plan(short, {**survey, "rows_come_again": False})


@pytest.mark.parametrize(
    ("same", "words"),
    [
        (True, "; its stream gave the same rows again"),
        (False, ", on other rows from step 20 on: its stream does not repeat itself"),
        (None, "; whether its stream gave the same rows again is not known"),
    ],
)
def test_a_resumed_stream_says_whether_it_repeated_itself(same: bool | None, words: str) -> None:
    view = stream_view()
    assert view.baseline is not None
    values = {"same_rows": same}
    noted = Evidence(experiment="resumed_stream", scale="full", step=20, values=values)
    evidence = view.baseline.evidence if same is None else (*view.baseline.evidence, noted)
    baseline = dataclasses.replace(view.baseline, num_attempts=2, evidence=evidence)
    found = judge(dataclasses.replace(view, arms={**view.arms, "baseline": baseline}), make_gates())
    assert any(line.endswith("killed and resumed" + words) for line in found.verdict["warnings"])
