"""The picture: its panels, its marks, and that it survives any series."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from pilot.diagnose.envelope import running_median, shape
from pilot.diagnose.marks import MAX_LABELS, labelled, place
from pilot.diagnose.plot import build, draw
from pilot.series.types import GRAD_NORM, NOTE, WARN
from tests.diagnose.traces import diverged, event, series, study, trace


def labels(figure: Figure) -> list[str]:
    return [axes.get_ylabel().replace("\n", " ") for axes in figure.axes]


def words(figure: Figure) -> list[str]:
    own = [text.get_text() for axes in figure.axes for text in axes.texts]
    return own + [text.get_text() for text in figure.texts]


def test_every_series_has_a_panel_on_the_same_axis() -> None:
    made = trace(
        [1.0] * 80,
        grad_norm=[1.0] * 80,
        learning_rate=[1e-4] * 80,
        validations={"": series([1.0, 0.9], [1, 80])},
    )
    figure = build(study(made, "healthy"))
    assert labels(figure) == ["loss", "gradient norm", "learning rate", "validation loss"]
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert [axes.get_yscale() for axes in figure.axes] == ["linear", "log", "linear", "linear"]
    assert labels(build(study(trace([1.0] * 9), "healthy"))) == ["loss"]


def test_events_are_spans_with_their_kind_and_recovery() -> None:
    figure = build(diverged())
    loss = figure.axes[0]
    spans = sorted((p.get_x(), p.get_x() + p.get_width()) for p in loss.patches)
    assert spans == [(210, 240), (410, 600)]
    assert {"never recovers", "spikes in a row"} <= set(words(figure))
    (back,) = [line for line in loss.lines if line.get_marker() == "o"]
    assert (list(back.get_xdata()), list(back.get_ydata())) == ([250], [1.0])
    key = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "back at its level" in key
    assert "1 note" in key
    assert "DIVERGED" in words(figure)


def test_events_differ_in_dashes_and_not_only_in_colour() -> None:
    figure = build(diverged())
    dashes = {line.get_linestyle() for line in figure.axes[0].lines if len(line.get_xdata()) == 2}
    assert {"-", "--"} <= dashes


def test_a_gradient_event_marks_only_its_own_panel() -> None:
    made = trace([1.0] * 80, grad_norm=[1.0] * 80)
    found = event("grad_norm_alarm", 10, 30, WARN, series=GRAD_NORM)
    loss, grad = build(study(made, "healthy", found)).axes
    assert (len(loss.patches), len(grad.patches)) == (0, 1)
    assert [text.get_text() for text in grad.texts] == ["gradient norm jump"]


def test_a_validation_event_marks_only_its_own_panel() -> None:
    made = trace([1.0] * 80, validations={"a": series([1.0, 2.0], [10, 80])})
    found = event("validation_worsening", 10, 80, WARN, series="a")
    loss, validation = build(study(made, "overfitting", found, main=0)).axes
    assert len(loss.patches) == 0
    assert len(validation.patches) == 1
    assert [text.get_text() for text in validation.texts] == ["validation gets worse"]


def test_points_that_are_not_finite_are_marked_at_the_border() -> None:
    bad = [1.0] * 50 + [float("nan"), float("inf")] + [1.0] * 28
    figure = build(study(trace(bad, grad_norm=bad), "diverged"))
    for axes in figure.axes:
        (marks,) = [line for line in axes.lines if line.get_marker() == "x"]
        assert list(marks.get_xdata()) == [51, 52]
    assert "NaN or inf (loss 2, gradient norm 2)" in [
        text.get_text() for text in figure.legends[0].get_texts()
    ]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([], id="empty"),
        pytest.param([1.0], id="one"),
        pytest.param([float("nan")] * 30, id="nan"),
        pytest.param([0.0] * 100, id="zero"),
        pytest.param([-1.0, 1.0] * 40, id="negative"),
        pytest.param([344093.2, 0.0, 0.0], id="huge"),
        pytest.param([1e308, -1e308, float("inf")], id="extreme"),
        pytest.param([1e-300] * 70, id="tiny"),
        pytest.param(list(np.linspace(1.0, 2.0, 5000)), id="long"),
    ],
)
def test_any_series_can_be_drawn(values: list[float], tmp_path: Path) -> None:
    made = trace(values, grad_norm=values, learning_rate=values, validations={"v": series(values)})
    found = event("single_spike", 1, 1, NOTE, series=GRAD_NORM)
    draw(study(made, "healthy", found), tmp_path / "out.png")
    with Image.open(tmp_path / "out.png") as picture:
        assert picture.format == "PNG"
        assert picture.width == 1170


def test_the_fall_of_the_start_may_leave_the_axis_but_an_event_may_not() -> None:
    values = [11.0, 8.0, 5.0] + [3.0, 3.1] * 100
    figure = build(study(trace(values), "healthy"))
    assert figure.axes[0].get_ylim()[1] < 4
    assert any("begins at 11" in text for text in words(figure))
    early = event("early_damage", 2, 3)
    assert build(study(trace(values), "diverged", early, main=0)).axes[0].get_ylim()[1] > 11


def test_an_explosion_gets_a_log_axis() -> None:
    assert build(study(trace([1.0] * 90 + [500.0]), "diverged")).axes[0].get_yscale() == "log"


def test_zeros_of_the_gradient_norm_are_counted() -> None:
    figure = build(study(trace([1.0] * 4, grad_norm=[0.0, 1.0, 2.0, 0.0]), "healthy"))
    assert "2 x 0" in words(figure)


def test_an_envelope_keeps_every_extreme() -> None:
    values = np.ones(50_000)
    values[31_234], values[40_000], values[7] = 9.0, -3.0, np.nan
    made = shape(series(list(values)))
    assert made.is_binned
    assert len(made.steps) <= 1500
    assert np.nanmax(made.high) == 9.0
    assert np.nanmin(made.low) == -3.0
    assert abs(made.steps[int(np.nanargmax(made.high))] - 31_235) <= made.window
    assert list(made.broken) == [8.0]
    assert np.nanmax(made.median) == 1.0


def test_a_short_series_is_drawn_as_it_is() -> None:
    made = shape(series([1.0, 5.0, 2.0]))
    assert not made.is_binned
    assert list(made.high) == [1.0, 5.0, 2.0]
    assert made.window == 1


def test_the_median_leaves_out_what_is_not_finite() -> None:
    values = np.array([1.0, np.nan, 3.0, 5.0, np.inf, 9.0])
    smooth = running_median(values, 3)
    assert smooth[[0, 2, 3, 5]].tolist() == [1.0, 4.0, 4.0, 9.0]
    assert np.isnan(smooth[[1, 4]]).all()


def test_labels_do_not_overlap() -> None:
    events = [event("consecutive_spikes", 10 * i, 10 * i + 5, WARN) for i in range(8)]
    placed = place(events, 0, 1000)
    assert len({label.row for label in placed}) == 8  # all at the same place: a row each
    apart = place([event("nonfinite", s, s) for s in (10, 500, 900)], 0, 1000)
    assert [label.row for label in apart] == [0, 0, 0]
    assert placed[0].middle > 0  # not cut off at the border


def test_only_the_most_severe_get_labels() -> None:
    notes = [event("single_spike", s, s, NOTE) for s in range(500)]
    grave = [event("consecutive_spikes", s, s, WARN) for s in range(40)]
    assert len(labelled([*notes, *grave])) == MAX_LABELS
    assert all(chosen.severity == WARN for chosen in labelled([*notes, *grave]))
    assert labelled(notes) == []
    assert len(labelled(notes[:3])) == 3


def test_fifty_thousand_points_and_a_thousand_events_are_drawn_fast(tmp_path: Path) -> None:
    values = [float(v) for v in np.random.default_rng(0).normal(3.0, 0.1, 50_000)]
    notes = [event("single_spike", s, s, NOTE) for s in range(1, 50_000, 50)]
    made = study(trace(values, grad_norm=values), "healthy", *notes)
    begin = time.perf_counter()
    draw(made, tmp_path / "out.png")
    assert time.perf_counter() - begin < 10  # about one second on an idle core


def test_names_from_logs_are_not_read_as_formulas(tmp_path: Path) -> None:
    made = trace(
        [1.0, 2.0],
        source=r"$\frac{1}{$_x.json",
        validations={r"$\frac{$": series([1.0, 2.0]), "b": series([1.0])},
    )
    draw(study(made, "healthy"), tmp_path / "out.png")
    assert (tmp_path / "out.png").stat().st_size > 1000
