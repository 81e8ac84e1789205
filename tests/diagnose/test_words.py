"""What happened, in one sentence: short logs, windows, values that are not finite, skips."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pilot.diagnose.answer import blocks, summary
from pilot.diagnose.study import Study, judge
from pilot.diagnose.sure import how_sure
from pilot.series.types import SKIPPED
from tests.diagnose.test_answer import flat, text_of
from tests.diagnose.traces import event, series, study, trace

NAN = float("nan")


def judged(loss: Sequence[float], **more: object) -> Study:
    made = trace(loss, **more)  # type: ignore[arg-type]
    return judge(made, made.source, made.source)


def said(of: Study) -> str:
    return flat(text_of(blocks(of, columns=100, has_plot=False), 100))


def test_few_points_without_an_event_are_not_called_healthy() -> None:
    few, many = judged([2.0, 1.9] * 6), judged([2.0 - 0.02 * k for k in range(40)])
    assert (few.diagnosis.state, many.diagnosis.state) == ("healthy", "healthy")
    assert said(few).startswith("run.json: no trouble seen. 12 points of the loss")
    assert said(many).startswith("run.json: healthy. 40 points")


def test_too_short_says_it_once() -> None:
    text = said(judged([2.0, 1.9, 1.8]))
    assert "how sure" not in text
    assert "3 points of the loss, one every step, steps 1 to 3, from 2 to 1.8." in text


def test_the_best_level_before_the_jump_is_named() -> None:
    loss = [10.9, 8.0, 6.0, 5.0, 4.8, 250.0, 90.0, 60.0, 45.0, 38.0, 34.0, 31.0]
    assert summary(judged(loss)) == (
        "the loss fell to 4.8 (step 5), jumped to 250 at step 6 and was not back when the log "
        "ended: 31 at the end (step 12)"
    )


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ([NAN], "the only loss in this log, at step 1, is NaN"),
        ([NAN, NAN], "the loss is NaN from the first logged step on (1 to 2), to the end"),
        (
            [2.0, 1.9, 2.1, float("inf"), 3e14],
            "the loss is inf at 1 of 5 points, at step 4; no plausible value after it: ",
        ),
        (
            [1.8, 1.7, 1.6, 9.0, NAN],
            "at step 5; before, the loss rose from 1.7 to 9 at step 4",
        ),
        ([3.5128] * 9, "the loss is exactly 3.5128 at the last 9 points: nothing was updated"),
        ([0.0] * 4 + [NAN, 0.0], "the loss is exactly 0 at 5 of 6 points from step 1 to 6"),
    ],
)
def test_what_is_not_finite_or_does_not_move(loss: list[float], words: str) -> None:
    assert words in summary(judged(loss))


def test_no_finite_gradient_norm_comes_first() -> None:
    rates = [2e-4, 1.9e-4, 1.8e-4]
    found = judged([0.6, 1.1, 0.6], grad_norm=[NAN] * 3, learning_rate=rates)
    assert summary(found) == "no gradient norm is finite (3 of 3 records): no update was made"


def test_a_flat_window_says_what_is_not_in_it() -> None:
    loss = [0.80, 0.79, 0.81, 0.78, 0.80, 0.82, 0.79, 0.80] * 6
    text = said(judged(loss, steps=range(355, 403)))
    assert text.startswith("run.json: healthy.")
    assert "worth a look: the loss is flat in this window: 0.8 in the first quarter" in text
    assert "the log begins at step 355, what came before is not in it" in text


def test_skipped_updates_are_called_so() -> None:
    made = trace([2.0] * 10)
    made = type(made)(
        source="run.json",
        format="megatron",
        axis="steps",
        train={**made.train, SKIPPED: series([1.0] * 10)},
    )
    text = said(judge(made, "run.json", "run.json"))
    assert text.startswith("run.json: not learning")
    assert "Update skipped in 10 records in a row from step 1, all there are: no update." in text
    assert "no update made warning 1-10" in text


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("early_damage", "open is only whether it comes back after the end of the log"),
        ("consecutive_spikes", "open is whether it comes back or stays: the log ends too soon"),
    ],
)
def test_what_is_open_is_said(kind: str, words: str) -> None:
    made = trace([1.0] * 80)
    found = event(kind, 40, 80, is_open=True)
    assert how_sure(found, made).endswith(words)
    assert "decided for good" not in said(study(made, "diverged", found, main=0))
