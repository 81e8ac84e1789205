"""What the points of a log say of resumes, and of the mean of an epoch."""

from __future__ import annotations

import math

from pilot.readers.fields import EPOCH_MEAN_TIER
from pilot.readers.points import ColumnKey, Points


def test_a_resume_is_said_once_on_the_run_concerned() -> None:
    once = [(step, 3.0) for step in range(10, 201, 10)]
    again = [(step, 2.0) for step in range(150, 301, 10)]
    points = Points("log", "test")
    for step, loss in [*once, *again, *once, *once]:
        points.train(step, {"loss": loss})
    found = points.traces()
    said = [sum("resumed" in note for note in trace.notes) for trace in found]
    assert said == [1, 0, 0]


def test_a_mean_of_an_epoch_that_is_nan_counts_at_its_end() -> None:
    points = Points("log", "test")
    mean = ColumnKey(False, "loss", EPOCH_MEAN_TIER, 0, "train_epoch_loss")
    for step in range(1, 31):
        points.train(step, {"loss": 2.0})
        if step % 10 == 0:
            points.row(None)
            points.put(mean, math.nan if step == 20 else 2.5)
    (trace,) = points.traces()
    series = trace.train["loss"]
    loss = dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
    assert math.isnan(loss.pop(20)) and set(loss.values()) == {2.0} and len(loss) == 29
    assert any("mean loss of an epoch is not finite" in note for note in trace.notes)


def test_without_steps_the_epoch_tells_runs_and_resumes() -> None:
    points = Points("log", "test")
    epochs = [0.1 * i for i in range(1, 21)]
    for epoch in [*epochs, *epochs, *[0.1 * i for i in range(16, 31)]]:
        points.train(None, {"loss": epoch, "epoch": round(epoch, 2)})
    first, second = points.traces()
    assert len(first.train["loss"].steps) == 20 and len(second.train["loss"].steps) == 30
    assert second.train["loss"].values.tolist() == [0.1 * i for i in range(1, 31)]
    assert not any("resumed" in note for note in first.notes)
    assert "resumed: from epoch 2 back to 1.6" in second.notes[0]
