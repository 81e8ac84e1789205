from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilot.readers.points import LAST, Points
from pilot.series.types import Trace

NAN = math.nan


def steps(trace: Trace, name: str = "loss") -> list[int]:
    return trace.train[name].steps.tolist()


def values(trace: Trace, name: str = "loss") -> list[float]:
    return trace.train[name].values.tolist()


def of_steps(*losses: tuple[float | None, float], **kwargs: str) -> list[Trace]:
    points = Points("log", "test", **kwargs)
    for step, loss in losses:
        points.train(step, {"loss": loss})
    return points.traces()


def test_a_plain_log() -> None:
    points = Points("log", "test", objective="lm")
    points.train(10, {"loss": 2.0, "grad_norm": None, "learning_rate": 1e-4})
    points.train(20, {"loss": NAN, "grad_norm": math.inf})
    points.validation(20, {"c4": 1.5})
    (trace,) = points.traces()
    assert (trace.source, trace.axis, trace.objective) == ("log", "steps", "lm")
    assert steps(trace) == [10, 20] and math.isnan(values(trace)[1])
    assert steps(trace, "grad_norm") == [20] and values(trace, "grad_norm") == [math.inf]
    assert trace.validations["c4"].values.tolist() == [1.5]
    assert trace.notes == ()


def test_nothing_that_decides_is_no_trace() -> None:
    points = Points("log", "test")
    points.train(1, {"learning_rate": 1e-4, "epoch": 0.1})
    assert points.traces() == [] and Points("log", "test").traces() == []


def test_every_step_twice_is_joined_by_the_mean() -> None:
    (trace,) = of_steps((10, 1.0), (10, 3.0), (20, 1.5), (20, 1.5))
    assert steps(trace) == [10, 20] and values(trace) == [2.0, 1.5]
    assert trace.notes == ("losses that repeat a step: 2 (their mean counts)",)


def test_a_non_finite_value_of_one_rank_is_kept() -> None:
    (trace,) = of_steps((10, 1.0), (10, NAN), (20, 1.0))
    assert math.isnan(values(trace)[0])


def test_a_progress_bar_counts_its_last_value() -> None:
    (trace,) = of_steps((1, 5.0), (1, 4.0), (2, 3.0), repeats=LAST)
    assert values(trace) == [4.0, 3.0] and trace.notes == (
        "losses that repeat a step: 1 (the last counts)",
    )


def test_a_later_validation_of_the_same_step_does_not_count() -> None:
    points = Points("log", "test")
    points.train(10, {"loss": 1.0})
    points.validation(10, {"": 2.0})
    points.validation(10, {"": 1.2})  # the best model, loaded at the end
    assert points.traces()[0].validations[""].values.tolist() == [2.0]


def test_a_resume_that_steps_back_wins_from_its_first_step_on() -> None:
    first = [(s, 1.0) for s in range(10, 510, 10)]
    second = [(s, 2.0) for s in range(310, 610, 10)]
    (trace,) = of_steps(*first, *second)
    assert steps(trace) == list(range(10, 610, 10))
    assert values(trace) == [1.0] * 30 + [2.0] * 30
    assert trace.notes == (
        "resumed: from step 500 back to 310; the later attempt counts from there on",
    )


def test_two_resumes_and_a_validation_that_the_second_replaced() -> None:
    points = Points("log", "test")
    for attempt, (begin, end) in enumerate([(1, 100), (51, 90), (41, 120)]):
        for step in range(begin, end + 1):
            points.train(step, {"loss": float(attempt)})
            if step % 20 == 0:
                points.validation(step, {"": float(attempt)})
    (trace,) = points.traces()
    assert values(trace) == [0.0] * 40 + [2.0] * 80
    assert trace.validations[""].steps.tolist() == [20, 40, 60, 80, 100, 120]
    assert trace.validations[""].values.tolist() == [0, 0, 2, 2, 2, 2]


def test_runs_one_after_the_other_are_separate() -> None:
    one = [(s, 1.0) for s in range(10, 210, 10)]
    traces = of_steps(*one, *one, *[(s, 3.0) for s in range(50, 1050, 50)])
    assert [t.source for t in traces] == ["log#1", "log#2", "log#3"]
    assert [steps(t)[-1] for t in traces] == [200, 200, 1000]
    assert traces[1].notes == ("run 2 of 3 in this log",)


def test_a_validation_before_the_first_loss_belongs_to_the_new_run() -> None:
    points = Points("log", "test")
    for run in range(2):
        points.validation(0, {"": 9.0 + run})
        for step in range(1, 6):
            points.train(step, {"loss": 1.0})
        points.validation(5, {"": 5.0 + run})
    first, second = points.traces()
    assert first.validations[""].values.tolist() == [9.0, 5.0]
    assert second.validations[""].steps.tolist() == [0, 5]
    assert second.validations[""].values.tolist() == [10.0, 6.0]


def test_runs_that_log_validations_only() -> None:
    points = Points("log", "test")
    for _ in range(3):
        for step in (0, 100, 200):
            points.validation(step, {"": 3.0 - step / 100})
    traces = points.traces()
    assert [t.validations[""].steps.tolist() for t in traces] == [[0, 100, 200]] * 3


def test_a_log_that_begins_late_and_falls_back_with_the_same_rate_is_a_resume() -> None:
    points = Points("log", "test")
    for attempt in range(2):
        for step in range(1000, 1500, 10):
            points.train(step, {"loss": float(attempt), "learning_rate": 1e-3 * (1 - step / 9000)})
    (trace,) = points.traces()
    assert values(trace) == [1.0] * 50 and "resumed" in trace.notes[0]


def test_two_ranks_a_little_out_of_step_are_joined() -> None:
    rows: list[tuple[float | None, float]] = []
    for step in range(10, 1000, 10):
        rows.append((step + 30, 2.0))
        rows.append((step, 2.002))
    (trace,) = of_steps(*rows)
    assert steps(trace) == list(range(10, 1030, 10))
    assert "several writers" in trace.notes[0]
    assert values(trace)[0] == 2.002 and values(trace)[50] == pytest.approx(2.001)


def test_one_line_out_of_order_is_sorted_into_place() -> None:
    (trace,) = of_steps((10, 1.0), (30, 3.0), (20, 2.0), (40, 4.0), (50, 5.0))
    assert values(trace) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert trace.notes == ("rows out of order: 1; sorted by step",)


def test_steps_that_start_over_in_each_epoch_are_counted_on() -> None:
    points = Points("log", "test")
    for epoch in range(3):
        for batch in range(0, 50, 10):
            points.train(batch, {"loss": 1.0, "epoch": float(epoch)})
        points.validation(40, {"": 2.0 - epoch})
    (trace,) = points.traces()
    assert steps(trace) == list(range(0, 150, 10))
    assert trace.validations[""].steps.tolist() == [40, 90, 140]
    assert trace.notes == ("the step count starts over in each epoch; counted on",)


def test_a_log_without_steps_is_numbered_by_record() -> None:
    points = Points("log", "test")
    points.validation(None, {"": 3.0})
    for i in range(3):
        points.train(None, {"loss": 1.0 + i, "epoch": 0.1 * i, "grad_norm": 1.0})
    points.validation(None, {"": 2.0})
    points.train(None, {"grad_norm": NAN, "epoch": 0.3})  # no loss: it was NaN
    (trace,) = points.traces()
    assert trace.axis == "records" and steps(trace) == [1, 2, 3]
    assert steps(trace, "grad_norm") == [1, 2, 3, 4] and steps(trace, "epoch") == [1, 2, 3, 4]
    assert trace.validations[""].steps.tolist() == [0, 3]


@pytest.mark.parametrize(("times", "expected"), [(1, 20), (2, 20), (3, 60)])
def test_records_that_two_handlers_print_count_once(times: int, expected: int) -> None:
    points = Points("log", "test")
    for i in range(20):
        for _ in range(times):
            points.train(None, {"loss": 2.0 - i / 100, "grad_norm": NAN if i == 3 else 1.0})
    (trace,) = points.traces()
    assert len(steps(trace)) == expected
    assert any("printed twice" in note for note in trace.notes) == (times == 2)


def test_a_dead_run_repeats_its_values_and_is_left_alone() -> None:
    points = Points("log", "test")
    for _ in range(20):
        points.train(None, {"loss": 0.0, "grad_norm": 0.0, "learning_rate": 1e-4})
    assert len(steps(points.traces()[0])) == 20


def test_without_steps_and_epochs_the_text_tells_where_a_run_starts() -> None:
    points = Points("log", "test")
    for _ in range(2):
        points.start()
        for _ in range(4):
            points.train(None, {"loss": 1.0})
    assert [steps(t) for t in points.traces()] == [[1, 2, 3, 4]] * 2


def test_a_step_that_is_no_whole_number_is_none() -> None:
    (trace,) = of_steps((0.5, 1.0), (NAN, 2.0), (1e300, 3.0), (math.inf, 4.0))
    assert trace.axis == "records" and steps(trace) == [1, 2, 3, 4]


LOSS_ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-5, 60)),
        st.one_of(st.none(), st.floats(width=32)),
        st.one_of(st.none(), st.floats(0, 4)),
        st.booleans(),
    ),
    max_size=60,
)


@settings(max_examples=80, derandomize=True, deadline=None)
@given(rows=LOSS_ROWS)
def test_any_rows_give_ordered_series_and_lose_no_last_value(
    rows: list[tuple[int | None, float | None, float | None, bool]],
) -> None:
    points = Points("log", "test")
    for step, loss, epoch, is_validation in rows:
        if is_validation:
            points.validation(step, {"": loss})
        else:
            points.train(step, {"loss": loss, "epoch": epoch})
    traces = points.traces()
    assert bool(traces) == any(loss is not None for _, loss, _, _ in rows)
    for trace in traces:
        for series in (*trace.train.values(), *trace.validations.values()):
            assert len(series.steps) == len(series.values) > 0
            assert (np.diff(series.steps) >= 0).all()
        if "loss" in trace.train:
            assert (np.diff(trace.train["loss"].steps) > 0).all()
