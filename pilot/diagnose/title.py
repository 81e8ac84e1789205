"""The head of the picture: the state, what happened, and a key of only what the picture has."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pilot.diagnose.answer import state_title, summary
from pilot.diagnose.envelope import shape
from pilot.diagnose.panels import BROKEN
from pilot.diagnose.plain import series_words
from pilot.diagnose.study import Study
from pilot.report.words import one_line
from pilot.series.types import GRAD_NORM, LOSS, NOTE, Event, Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_COLOURS = {"healthy": "#2e7d32", "unstable": "#b2182b", "diverged": "#b2182b", "dead": "#b2182b"}
_OTHER_COLOUR = "#8a5a00"
_MAX_NAME_CHARS = 70


def draw_titles(figure: Figure, study: Study, height: float, left: float) -> None:
    """State and source in the first line, what happened below; ``height`` in inches."""
    common: dict[str, Any] = {"va": "top", "parse_math": False}
    colour = _COLOURS.get(study.diagnosis.state, _OTHER_COLOUR)
    word = state_title(study)
    figure.text(left, 1 - 0.1 / height, word, color=colour, fontsize=14, weight="bold", **common)
    name = one_line(study.source)
    name = name if len(name) <= _MAX_NAME_CHARS else f"...{name[3 - _MAX_NAME_CHARS :]}"
    figure.text(0.985, 1 - 0.13 / height, name, fontsize=9.5, ha="right", **common)
    text = textwrap.wrap(summary(study), 150, max_lines=2, placeholder=" ...")
    lines = "\n".join(text)
    figure.text(left, 1 - 0.39 / height, lines, fontsize=9, color="#333333", **common)


def draw_key(
    figure: Figure, trace: Trace, study: Study, chosen: Sequence[Event], height: float, left: float
) -> None:
    """What lines and marks mean, in one row."""
    handles = [*_lines(trace), *_marks(trace, study, chosen)]
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(left - 0.004, 1 - 0.69 / height),
        ncols=8,
        fontsize=8,
        frameon=False,
        borderpad=0.0,
        columnspacing=1.3,
        handletextpad=0.5,
        handlelength=1.5,
    )


def _lines(trace: Trace) -> list[Line2D]:
    from matplotlib.lines import Line2D

    series = trace.train.get(LOSS) or trace.train.get(GRAD_NORM)
    if series is None:
        return []
    made = shape(series)
    if made.window == 1:
        return [Line2D([], [], color="black", lw=1.3, label="each point")]
    if made.is_binned:
        band = Line2D([], [], color="#b9b9b9", lw=5, label=f"lowest to highest of {made.window}")
    else:
        band = Line2D([], [], color="#8c8c8c", lw=0.8, label="each point")
    return [band, Line2D([], [], color="black", lw=1.4, label=f"median of {made.window}")]


def _marks(trace: Trace, study: Study, chosen: Sequence[Event]) -> list[Line2D]:
    from matplotlib.lines import Line2D

    style: dict[str, Any] = {"ls": "none", "markersize": 6}
    made = []
    broken = [
        f"{series_words(trace, name)} {count}"
        for name in (LOSS, GRAD_NORM)
        if name in trace.train and (count := int((~np.isfinite(trace.train[name].values)).sum()))
    ]
    if broken:
        text = f"NaN or inf ({', '.join(broken)})"
        made.append(
            Line2D([], [], color=BROKEN, marker="x", markeredgewidth=1.4, label=text, **style)
        )
    if any(event.recovered_step is not None and event.severity != NOTE for event in chosen):
        hollow: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 1.4}
        text = "back at its level"
        made.append(Line2D([], [], color="black", marker="o", label=text, **hollow, **style))
    rest = [event for event in study.diagnosis.events if event not in chosen]
    if rest:
        what = "note" if all(event.severity == NOTE for event in rest) else "other event"
        text = f"{len(rest)} {what}{'s' if len(rest) > 1 else ''}"
        made.append(Line2D([], [], color="#555555", marker="v", label=text, **style))
    return made
