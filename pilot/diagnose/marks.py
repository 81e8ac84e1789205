"""The events in the picture: shaded spans, labels in rows above, ticks for notes, recoveries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilot.diagnose.plain import kind_words
from pilot.diagnose.study import by_severity
from pilot.series.types import FAIL, NOTE, WARN, Event, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LABELS, MAX_NOTE_LABELS = 10, 3
_CHAR_SHARE = 0.0072  # width of one character of a label, in widths of the axes
# Colour, opacity and the dashes of the borders: told apart without colour.
_LOOKS = {FAIL: ("#b2182b", 0.17, "-"), WARN: ("#e08214", 0.2, "--"), NOTE: ("#777777", 0.12, ":")}
_TEXT_COLOURS = {FAIL: "#a01525", WARN: "#8f4d00"}
_MIN_SPAN = 0.0015  # of the axis: a narrower event is drawn as a line


@dataclass(frozen=True, kw_only=True)
class Label:
    """An event's label: its text, its middle in axis steps, its row above the panel."""

    text: str
    middle: float
    row: int
    severity: str


def labelled(events: Sequence[Event]) -> list[Event]:
    """The events that get a label and a span: the most severe; a few notes if alone."""
    ordered = by_severity(events)
    grave = [event for event in ordered if event.severity != NOTE]
    few = ordered if len(ordered) <= MAX_NOTE_LABELS else []
    return (grave or few)[:MAX_LABELS]


def place(events: Sequence[Event], first: float, last: float) -> list[Label]:
    """Rows for the labels such that none overlaps; ``first`` and ``last`` are the axis' limits."""
    width, ends, made = max(last - first, 1e-9), list[float](), []
    for event in sorted(events, key=lambda e: (e.first_step, e.last_step)):
        text = kind_words(event.kind)
        share = ((event.first_step + event.last_step) / 2 - first) / width
        half = _CHAR_SHARE * (len(text) + 2) / 2
        share = min(max(share, half), 1 - half)
        row = next((i for i, end in enumerate(ends) if share - half >= end), len(ends))
        ends[row : row + 1] = [share + half]
        middle = first + share * width
        made.append(Label(text=text, middle=middle, row=row, severity=event.severity))
    return made


def draw_labels(axes: Axes, labels: Sequence[Label], *, inside: bool = False) -> None:
    """The labels above a panel, or at its upper border inside."""
    for label in labels:
        lift = -(25 + 12 * label.row) if inside else 4 + 12 * label.row
        axes.annotate(
            label.text,
            (label.middle, 1.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(0, lift),
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
            weight="bold" if label.severity == FAIL else "normal",
            color=_TEXT_COLOURS.get(label.severity, "#444444"),
            annotation_clip=False,
            bbox={"facecolor": "white", "alpha": 0.6 if inside else 0.0, "lw": 0, "pad": 0.8},
            zorder=8,
        )


def draw_spans(axes: Axes, events: Sequence[Event]) -> None:
    """Shade each event, with borders at its first and last step."""
    low, high = axes.get_xlim()
    for event in events:
        colour, alpha, dashes = _LOOKS[event.severity]
        first, last = float(event.first_step), float(event.last_step)
        if last - first < _MIN_SPAN * (high - low):
            axes.axvline(first, color=colour, ls=dashes, lw=1.0, alpha=0.8, zorder=1)
            continue
        axes.axvspan(first, last, facecolor=colour, alpha=alpha, lw=0, zorder=0)
        for border in (first, last):
            axes.axvline(border, color=colour, ls=dashes, lw=0.8, alpha=0.7, zorder=1)


def draw_ticks(axes: Axes, events: Sequence[Event]) -> None:
    """A small triangle at the upper border for each event that has no span."""
    if events:
        axes.plot(
            [event.first_step for event in events],
            [0.985] * len(events),
            transform=axes.get_xaxis_transform(),
            color="#555555",
            marker="v",
            markersize=4.5,
            ls="none",
            zorder=6,
        )


def draw_recoveries(axes: Axes, events: Sequence[Event], series: Series) -> bool:
    """A hollow circle where the series was back at its level; whether there is any."""
    values = dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
    steps = {event.recovered_step for event in events if event.recovered_step is not None}
    back = sorted(steps & values.keys())
    axes.plot(
        back,
        [values[step] for step in back],
        color="black",
        marker="o",
        markersize=7,
        markerfacecolor="white",
        markeredgewidth=1.5,
        ls="none",
        zorder=6,
    )
    return bool(back)
