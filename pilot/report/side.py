"""The names of the arms beside the loss: each as near to the end of its line as there is room.

Two lines never share a name, two names never overlap: heights are kept apart, and a thin leader
joins a name with the end of its line when that lies at the right border.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pilot.report.curves import DECIDED, DIVERGED, LARGEST, LOST, Curve, Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDING_MARKERS = {DIVERGED: "X", DECIDED: "o", LOST: "v"}
_FONT = 8.8
_LINE_INCHES = 0.148  # one line of text of that size
_GAP_INCHES = 0.055
_SAMPLE_INCHES = 0.42
_INCHES_PER_CHAR = 0.067  # wide enough for ordinary words of that size


@dataclass(frozen=True)
class _Label:
    lines: tuple[str, ...]
    curve: Curve | None  # None: an arm that is only named
    wanted: float  # height in inches above the figure's bottom


def draw_names(figure: Figure, axes: Axes, drawing: Drawing, left: float) -> None:
    """Name every arm right of ``left`` (inches from the left border), next to ``axes``."""
    width, height = figure.get_size_inches()
    box = axes.get_position()
    bottom, top = box.y0 * height, box.y1 * height
    num_chars = int((width - left - _SAMPLE_INCHES - 0.16) / _INCHES_PER_CHAR)
    labels = [
        _Label(_wrapped(c.text, num_chars), c, _end_height(axes, c, bottom, top))
        for c in drawing.curves
    ]
    labels.sort(key=lambda label: -label.wanted)
    named = [_Label(_wrapped(text, num_chars), None, bottom) for text in drawing.only_named]
    labels += named
    sizes = [len(label.lines) * _LINE_INCHES + _GAP_INCHES for label in labels]
    centres = spread([label.wanted for label in labels], sizes, bottom, top)
    for label, centre in zip(labels, centres, strict=True):
        _draw_label(figure, label, left, centre)
        if label.curve is not None and not label.curve.ending:
            _draw_leader(figure, axes, label, left, centre)


def spread(wanted: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Centres as near to ``wanted`` (descending) as they can be without overlap, from the top down.

    Least squares: isotonic regression (pool adjacent violators) of the wanted centres after the
    distances are taken out, cut at the borders. Where all together are higher than the room, they
    begin at ``high`` and leave it below ``low``.
    """
    if not wanted:
        return []
    half = np.asarray(sizes, dtype=np.float64) / 2
    offsets = np.concatenate([[0.0], np.cumsum(half[:-1] + half[1:])])
    blocks: list[tuple[float, int]] = []  # mean and number, means descending
    for value in np.asarray(wanted, dtype=np.float64) + offsets:
        mean, number = float(value), 1
        while blocks and blocks[-1][0] <= mean:
            before, count = blocks.pop()
            mean, number = (before * count + mean * number) / (count + number), count + number
        blocks.append((mean, number))
    flat = np.concatenate([np.full(number, mean) for mean, number in blocks])
    highest = high - half[0]
    lowest = min(highest, low + half[-1] + offsets[-1])
    return [float(x) for x in flat.clip(lowest, highest) - offsets]


def _wrapped(text: str, num_chars: int) -> tuple[str, ...]:
    wrapped = textwrap.wrap(text, max(12, num_chars), max_lines=2, placeholder=" ...")
    return tuple(wrapped) or ("",)


def end_point(curve: Curve) -> tuple[float, float] | None:
    """Where the curve's line ends in the loss axes: its last validation or smooth value."""
    finite = np.flatnonzero(np.isfinite(curve.smooth["loss"]))
    if len(finite) == 0:
        return None
    step, value = curve.steps[finite[-1]], curve.smooth["loss"][finite[-1]]
    last = max(curve.validations, key=lambda v: v.step, default=None)
    if last is not None and last.step >= step:
        return float(last.step), min(max(last.loss, -LARGEST), LARGEST)
    return float(step), float(value)


def _end_height(axes: Axes, curve: Curve, bottom: float, top: float) -> float:
    point = end_point(curve)
    if point is None:
        return bottom
    low, high = axes.get_ylim()
    pixels = axes.transData.transform((point[0], min(max(point[1], low), high)))[1]
    return float(min(max(pixels / axes.figure.dpi, bottom), top))


def _draw_label(figure: Figure, label: _Label, left: float, centre: float) -> None:
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    text: dict[str, Any] = {"va": "center_baseline", "fontsize": _FONT, "parse_math": False}
    y = centre / height
    if label.curve is None:
        figure.text(left / width, y, "\n".join(label.lines), color="#666666", **text)
        return
    style = label.curve.style
    sample = [left / width, (left + _SAMPLE_INCHES) / width]
    weight = "bold" if label.curve.is_baseline else "normal"
    figure.add_artist(
        Line2D(
            [sample[0], sum(sample) / 2, sample[1]],
            [y, y, y],
            color=style.colour,
            ls=style.dashes,
            lw=2.4 if label.curve.is_baseline else 2.0,
            marker=ENDING_MARKERS.get(label.curve.ending, ""),
            markevery=[1],
            markersize=7,
            markeredgecolor="white",
            markeredgewidth=0.8,
        )
    )
    x = (left + _SAMPLE_INCHES + 0.08) / width
    figure.text(x, y, "\n".join(label.lines), color="#111111", weight=weight, **text)


def _draw_leader(figure: Figure, axes: Axes, label: _Label, left: float, centre: float) -> None:
    from matplotlib.lines import Line2D

    point = end_point(label.curve) if label.curve else None
    if label.curve is None or point is None:
        return
    width, height = figure.get_size_inches()
    low, high = axes.get_ylim()
    pixels = axes.transData.transform((point[0], min(max(point[1], low), high)))
    start = pixels / (figure.dpi * np.array([width, height]))
    end = ((left - 0.06) / width, centre / height)
    colour = label.curve.style.colour
    figure.add_artist(
        Line2D(
            [start[0] + 0.08 / width, end[0]],
            [start[1], end[1]],
            color=colour,
            lw=0.7,
            alpha=0.8,
        )
    )
