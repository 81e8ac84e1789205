"""The picture of a run: loss, gradient norm, learning rate, validation, with its events.

Drawn with matplotlib's Agg canvas and without pyplot, so no state is left behind. Events differ in
dashes and words, not only in colour: the picture reads the same in greyscale.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pilot.diagnose import marks, panels
from pilot.diagnose.numbers import span
from pilot.diagnose.plain import step_word
from pilot.diagnose.study import Study
from pilot.diagnose.title import draw_key, draw_titles
from pilot.series.types import GRAD_NORM, LEARNING_RATE, LOSS, NOTE, Event, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VALIDATION = "validation"  # the panel of all validation sets
_WIDTH, _DPI, _LEFT = 11.7, 100, 1.0
_HEIGHTS = {LOSS: 3.5, GRAD_NORM: 1.7, LEARNING_RATE: 0.95, VALIDATION: 1.9}
_HEAD, _ROW, _FOOT, _GAP = 0.98, 0.17, 0.5, 0.13  # inches
_STYLE = {"text.usetex": False, "font.size": 9.5, "axes.unicode_minus": False}
_LABEL_PLACE = -0.062  # of the names of the panels, in widths of the axes
_FAR = 2**62  # later than any step


def draw(study: Study, path: Path | IO[bytes]) -> None:
    """Draw a run that could be read as a PNG, into a file or a binary stream.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with rc_context(_STYLE), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = build(study)
        FigureCanvasAgg(figure).print_png(path, metadata={"Software": None})  # type: ignore[no-untyped-call]


def build(study: Study) -> Figure:
    """The figure; panels without a series are left out."""
    from matplotlib.figure import Figure

    trace = study.trace
    assert trace is not None
    names = [name for name in _HEIGHTS if _has(trace, name)] or [LOSS]
    first, last = _limits(trace)
    chosen = marks.labelled(study.diagnosis.events)
    by_panel = _by_panel(chosen, trace, names)
    labels = marks.place(by_panel[names[0]], first, last)
    head = _HEAD + _ROW * (1 + max((label.row for label in labels), default=-1))
    height = head + sum(_HEIGHTS[n] for n in names) + _GAP * (len(names) - 1) + _FOOT
    figure = Figure(figsize=(_WIDTH, height), dpi=_DPI)
    all_axes = _make_axes(figure, names, head, height)
    _draw_series(all_axes, trace, chosen)
    _finish(list(all_axes.values()), first, last, step_word(trace))
    for name, axes in all_axes.items():
        everywhere = by_panel[LOSS] if name != LOSS and LOSS in all_axes else []
        marks.draw_spans(axes, [*everywhere, *by_panel[name]])
        if name != names[0]:
            marks.draw_labels(axes, marks.place(by_panel[name], first, last), inside=True)
    marks.draw_labels(all_axes[names[0]], labels)
    _draw_small_marks(all_axes, study, trace, chosen)
    draw_titles(figure, study, height, _LEFT / _WIDTH)
    draw_key(figure, trace, study, chosen, height, _LEFT / _WIDTH)
    return figure


def _has(trace: Trace, name: str) -> bool:
    if name == VALIDATION:
        return any(len(series.steps) for series in trace.validations.values())
    return name in trace.train and bool(len(trace.train[name].steps))


def _by_panel(
    events: Sequence[Event], trace: Trace, names: Sequence[str]
) -> dict[str, list[Event]]:
    """The events of each panel: that of their series, or the first. The loss's shade all panels."""
    made: dict[str, list[Event]] = {name: [] for name in names}
    for event in events:
        panel = event.series if event.series in trace.train else VALIDATION
        made[panel if panel in made else names[0]].append(event)
    return made


def _limits(trace: Trace) -> tuple[float, float]:
    covered = span(trace) or (0, 0, 1)
    margin = 0.012 * max(1, covered[2] - covered[1])
    return covered[1] - margin, covered[2] + margin


def _make_axes(figure: Figure, names: Sequence[str], head: float, height: float) -> dict[str, Axes]:
    made: dict[str, Axes] = {}
    top = height - head
    for name in names:
        box = (
            _LEFT / _WIDTH,
            (top - _HEIGHTS[name]) / height,
            1 - (_LEFT + 0.3) / _WIDTH,
            _HEIGHTS[name] / height,
        )
        made[name] = figure.add_axes(box, sharex=next(iter(made.values()), None))
        top -= _HEIGHTS[name] + _GAP
    return made


def _draw_series(all_axes: dict[str, Axes], trace: Trace, events: Sequence[Event]) -> None:
    if LOSS in all_axes and LOSS in trace.train:
        begin = min((event.first_step for event in events), default=_FAR)
        panels.draw_loss(all_axes[LOSS], trace.train[LOSS], begin)
    if GRAD_NORM in all_axes:
        panels.draw_grad_norm(all_axes[GRAD_NORM], trace.train[GRAD_NORM])
    if LEARNING_RATE in all_axes:
        panels.draw_rate(all_axes[LEARNING_RATE], trace.train[LEARNING_RATE])
    if VALIDATION in all_axes:
        panels.draw_validations(all_axes[VALIDATION], trace.validations)


def _finish(all_axes: Sequence[Axes], first: float, last: float, name: str) -> None:
    for axes in all_axes:
        axes.set_xlim(first, last)
        axes.yaxis.set_label_coords(_LABEL_PLACE, 0.5)
        axes.grid(axis="y", color="#bbbbbb", lw=0.5, alpha=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelbottom=axes is all_axes[-1], labelsize=8.5)
    all_axes[-1].set_xlabel(name)
    all_axes[-1].ticklabel_format(axis="x", style="plain", useOffset=False)


def _draw_small_marks(
    all_axes: dict[str, Axes], study: Study, trace: Trace, chosen: Sequence[Event]
) -> None:
    """Ticks for the events without a span, circles where the loss was back."""
    rest = [event for event in study.diagnosis.events if event not in chosen]
    top = next(iter(all_axes.values()))
    for name, axes in all_axes.items():
        own = [e for e in rest if e.series == name or (axes is top and e.series not in all_axes)]
        marks.draw_ticks(axes, own)
        if name in trace.train:
            back = [e for e in chosen if e.series == name and e.severity != NOTE]
            marks.draw_recoveries(axes, back, trace.train[name])
