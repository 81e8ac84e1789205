"""The window tier in the figure: events as bars with their kind, the extension as a dotted line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pilot.checks.events import found_events
from pilot.report.axes import Panels
from pilot.report.colours import arm_style
from pilot.report.curves import LARGEST, column
from pilot.series.types import FAIL, NOTE, Event
from pilot.view import ArmView, PilotView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_MARKS = 4
_BAR = {FAIL: "#b2182b"}
_WARN_BAR = "#8c5a00"


def draw_events(view: PilotView, panels: Panels) -> None:
    """Mark the baseline's worst events (at most four, no notes) and draw its extension, if any.

    Non-finite values leave gaps. Without a baseline or an event nothing is drawn.
    """
    baseline = view.baseline
    if baseline is None:
        return
    _draw_extension(baseline, panels)
    events = [e for e in found_events(view, baseline)[0] if e.severity != NOTE]
    events.sort(key=lambda event: (event.severity != FAIL, event.first_step))
    for row, event in enumerate(events[:_MAX_MARKS]):
        axes = panels.grad_norm if event.series == "grad_norm" else panels.loss
        _mark(axes, event, row)


def _mark(axes: Axes, event: Event, row: int) -> None:
    """A bar over the event's steps at the lower border, its kind above it."""
    colour = _BAR.get(event.severity, _WARN_BAR)
    height, blend = 0.03 + 0.075 * row, axes.get_xaxis_transform()
    first, last = event.first_step - 0.5, event.last_step + 0.5
    axes.plot([first, last], [height, height], transform=blend, color=colour, lw=4, zorder=7,
              solid_capstyle="butt")  # fmt: skip
    left, right = axes.get_xlim()
    is_late = first > (left + right) / 2
    axes.annotate(
        event.kind.replace("_", " "),
        (last if is_late else first, height),
        xycoords=blend,
        xytext=(0, 3),
        textcoords="offset points",
        ha="right" if is_late else "left",
        fontsize=8,
        color=colour,
        zorder=8,
        bbox={"facecolor": "white", "alpha": 0.8, "lw": 0, "pad": 0.5},
    )


def _draw_extension(baseline: ArmView, panels: Panels) -> None:
    if not baseline.extension:
        return
    records = (*baseline.steps[-1:], *baseline.extension)
    colour, steps = arm_style(baseline.job).colour, column(records, "step")
    for name in ("loss", "grad_norm", "learning_rate"):
        values = column(records, name)
        if name == "grad_norm":
            values = np.where(values > 0, values, np.nan)
        axes: Axes = getattr(panels, name)
        low, high = axes.get_ylim()
        axes.plot(steps, values.clip(-LARGEST, LARGEST), color=colour, ls=":", lw=1.3, zorder=5)
        axes.set_ylim(low, high)
    left, right = panels.loss.get_xlim()
    last = float(steps[-1])
    panels.loss.set_xlim(left, max(right, last + 0.015 * (last - left)))
    panels.loss.annotate(
        "extension", (last, 0.97), xycoords=panels.loss.get_xaxis_transform(), ha="right",
        va="top", fontsize=8,
    )  # fmt: skip
