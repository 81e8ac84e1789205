"""Whatever a log holds: an answer, strict JSON and a picture, and never a crash."""

from __future__ import annotations

import io

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pilot.diagnose.answer import blocks, overview
from pilot.diagnose.contract import to_json
from pilot.diagnose.plot import draw
from pilot.diagnose.study import Study, judge
from pilot.series.types import TRAIN_NAMES, Series, Trace
from tests.diagnose.test_answer import text_of
from tests.diagnose.test_contract import check_contract, strict

ANY_FLOAT = st.one_of(
    st.floats(-1e3, 1e3), st.floats(), st.sampled_from([0.0, 1.0, float("nan"), float("inf")])
)
ANY_NAME = st.text(max_size=12)


@st.composite
def any_series(draw_: st.DrawFn) -> Series:
    values = draw_(st.lists(ANY_FLOAT, max_size=80))
    gaps = draw_(st.lists(st.integers(0, 20), min_size=len(values), max_size=len(values)))
    begin = draw_(st.sampled_from([0, 1, 10**12]))
    steps = begin + np.cumsum(np.array(gaps, dtype=np.int64))
    return Series(steps=steps, values=np.array(values, dtype=np.float64))


@st.composite
def any_trace(draw_: st.DrawFn) -> Trace:
    return Trace(
        source=draw_(ANY_NAME) or "x",
        format=draw_(st.sampled_from(["trainer_state", "nanogpt", "csv"])),
        axis=draw_(st.sampled_from(["steps", "records"])),
        train=draw_(st.dictionaries(st.sampled_from(TRAIN_NAMES), any_series(), max_size=4)),
        validations=draw_(st.dictionaries(ANY_NAME, any_series(), max_size=2)),
        objective=draw_(st.sampled_from(["lm", "rl", "preference", "other", "unknown"])),
        notes=tuple(draw_(st.lists(ANY_NAME, max_size=2))),
    )


def judged(trace: Trace) -> Study:
    return judge(trace, trace.source, trace.source)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(any_trace(), st.sampled_from([40, 80, 110]))
def test_text_and_json(trace: Trace, columns: int) -> None:
    study = judged(trace)
    check_contract(strict(to_json([study, study])))
    made = [*overview([study, study], columns), *blocks(study, columns=columns, has_plot=False)]
    text = text_of(made, columns)
    assert "None" not in text
    assert not any(ord(c) < 32 and c != "\n" for c in text)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(any_trace())
def test_pictures(trace: Trace) -> None:
    out, study = io.BytesIO(), judged(trace)
    assume(study.trace is not None)
    draw(study, out)
    assert out.getvalue()[:4] == b"\x89PNG"


def test_a_run_without_any_value_is_not_readable() -> None:
    empty = Trace(source="x", format="csv", axis="steps", train={})
    study = judged(empty)
    assert (study.trace, study.diagnosis.state) == (None, "unreadable")
    assert study.error == "x: no loss and no gradient norm in it (found: nothing)"
