"""The figure of a pilot: baseline and arms over each other, with the segments of the plan shaded.

Drawn with matplotlib's Agg canvas and without pyplot, so no state is left behind. Colours differ in
brightness and in line style: the figure reads the same in greyscale.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pilot.plan import BEFORE, COOLDOWN_END, MID_PEAK, PEAK_END, RUN_END, WARMUP_END
from pilot.report.axes import Panels, finish
from pilot.report.colours import VERDICT_COLOURS
from pilot.report.curves import COLUMNS, LARGEST, Curve, Drawing, drawing, non_finite_steps
from pilot.report.event_marks import draw_events
from pilot.report.side import ENDING_MARKERS, draw_names
from pilot.report.words import FIGURE_NAME, one_line
from pilot.view import PilotView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["VERDICT_COLOURS", "draw", "non_finite_steps"]

_WIDTH, _HEIGHT, _DPI = 11.9, 9.9, 100
_LEFT, _RIGHT = 1.0, 8.95  # borders of the axes in inches; the names of the arms follow
_HEIGHTS = (3.6, 1.55, 0.8, 1.4, 1.0)
_MARKERS = {BEFORE: "o", WARMUP_END: "^", MID_PEAK: "^", PEAK_END: "s", RUN_END: "D"}
_MARKERS[COOLDOWN_END] = "D"
_STYLE = {"text.usetex": False, "font.size": 10.0, "axes.unicode_minus": False}
_LOG_PANELS = ("grad_norm", "relative_update")
_AS_IT_IS = ("relative_update", "learning_rate")  # ramps, which a median would bend
_PLACES = {
    BEFORE: "validation before step {first}",
    WARMUP_END: "at warm-up end",
    MID_PEAK: "in mid-peak",
    PEAK_END: "at peak end",
    RUN_END: "at the end",
    COOLDOWN_END: "after cool-down",
}


def draw(view: PilotView, verdict: Mapping[str, Any], out_dir: Path) -> list[Path]:
    """Draw the figure into ``out_dir`` (created if needed) and return the paths.

    Non-finite values leave a gap in their curve, a mark at the upper border and a count in the
    title; empty series give empty axes that say so. Values beyond 1e100 are drawn at 1e100.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / FIGURE_NAME
    with rc_context(_STYLE), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = _figure(view, verdict)
        FigureCanvasAgg(figure).print_png(path, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return [path]


def _figure(view: PilotView, verdict: Mapping[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), dpi=_DPI)
    borders = {"left": _LEFT / _WIDTH, "right": _RIGHT / _WIDTH, "top": 0.872, "bottom": 0.052}
    grid = figure.add_gridspec(5, 1, height_ratios=_HEIGHTS, hspace=0.1, **borders)
    loss = figure.add_subplot(grid[0])
    panels = Panels(loss, *(figure.add_subplot(grid[row], sharex=loss) for row in range(1, 5)))
    content = drawing(view, verdict)
    for curve in content.curves:
        _draw_curve(panels, curve, _order(curve))
    finish(view, panels, content.curves, non_finite_steps(view.baseline))
    draw_events(view, panels)
    for curve in content.curves:
        _draw_ending(panels, curve)
    figure.align_ylabels()
    draw_names(figure, loss, content, _RIGHT + 0.22)
    _titles(figure, view, verdict)
    _draw_key(figure, content)
    return figure


def _order(curve: Curve) -> int:
    """The baseline above the arms, the replicas below."""
    return 5 if curve.is_baseline else 2 if curve.is_replica else 3


def _draw_curve(panels: Panels, curve: Curve, order: int) -> None:
    """The steps thin (arms fainter) and their median thick; rate and update as they are."""
    style: dict[str, Any] = {"color": curve.style.colour, "ls": curve.style.dashes}
    thick = 2.0 if curve.is_baseline else 1.4 if curve.is_replica else 1.7
    for name in COLUMNS:
        axes: Axes = getattr(panels, name)
        raw, smooth = curve.series[name], curve.smooth[name]
        if name in _LOG_PANELS:
            raw, smooth = (np.where(values > 0, values, np.nan) for values in (raw, smooth))
        if name in _AS_IT_IS:
            axes.plot(curve.steps, raw, lw=0.8 * thick, zorder=order, **style)
            continue
        faint = 0.42 if curve.is_baseline else 0.13
        axes.plot(curve.steps, raw, color=curve.style.colour, lw=0.6, alpha=faint, zorder=order - 1)
        axes.plot(curve.steps, smooth, lw=thick, zorder=order, **style)
    for point in curve.validations:
        panels.loss.plot(
            [point.step],
            [min(max(point.loss, -LARGEST), LARGEST)],
            color=curve.style.colour,
            marker=_MARKERS.get(point.at, "o"),
            markersize=8 if curve.is_baseline else 6,
            markerfacecolor="white",
            markeredgewidth=1.7 if curve.is_baseline else 1.3,
            ls="none",
            zorder=order + 3,
        )


def _draw_ending(panels: Panels, curve: Curve) -> None:
    """Mark where an arm ended before its end, at the border where its value lies outside."""
    marker = ENDING_MARKERS.get(curve.ending)
    for name in COLUMNS if marker else ():
        axes: Axes = getattr(panels, name)
        values = (curve.series if name in _AS_IT_IS else curve.smooth)[name]
        finite = values[np.isfinite(values)]
        if len(finite) == 0:
            continue
        low, high = axes.get_ylim()
        axes.plot(
            [curve.steps[-1]],
            [min(max(float(finite[-1]), low), high)],
            color=curve.style.colour,
            marker=marker,
            markersize=9 if name == "loss" else 7,
            markeredgecolor="white",
            markeredgewidth=0.9,
            ls="none",
            clip_on=False,
            zorder=9,
        )


def _titles(figure: Figure, view: PilotView, verdict: Mapping[str, Any]) -> None:
    word = one_line(verdict.get("verdict", ""), 20)
    colour = VERDICT_COLOURS.get(word, "black") if word != "INCONCLUSIVE" else "#8a5a00"
    broken = non_finite_steps(view.baseline)
    count = ""
    if broken:
        steps = "step" if len(broken) == 1 else "steps"
        count = f"  ·  {len(broken)} non-finite {steps} (x), first at {broken[0]}"
    common: dict[str, Any] = {"va": "top", "parse_math": False}
    left, right = _LEFT / _WIDTH, 1 - 0.15 / _WIDTH
    figure.text(left, 0.988, word, color=colour, fontsize=15, weight="bold", **common)
    head = f"{one_line(view.plan.recipe, 40)}{count}"
    figure.text(right, 0.986, head, fontsize=10.5, ha="right", **common)
    why = textwrap.wrap(one_line(verdict.get("why", "")), 138, max_lines=2, placeholder=" ...")
    figure.text(left, 0.961, "\n".join(why), fontsize=9.5, color="#333333", **common)


def _draw_key(figure: Figure, content: Drawing) -> None:
    """What lines and markers mean, in one row: only what the figure has."""
    from matplotlib.lines import Line2D

    if not content.curves:
        return
    grey: dict[str, Any] = {"color": "#444444", "ls": "none", "markersize": 6.5}
    handles = [Line2D([], [], color="#444444", lw=0.7, label="each step")]
    if content.width > 1:
        label = f"median of {content.width}"
        handles.append(Line2D([], [], color="#444444", lw=2.0, label=label))
    places = {v.at: v for curve in content.curves for v in curve.validations}
    first = places[BEFORE].step + 1 if BEFORE in places else 1
    for at, marker in _MARKERS.items():
        if at in places:
            white: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 1.3}
            label = _PLACES[at].format(first=first)
            handles.append(Line2D([], [], marker=marker, label=label, **grey, **white))
    endings = {curve.ending for curve in content.curves}
    for ending, marker in ENDING_MARKERS.items():
        if ending in endings:
            handles.append(Line2D([], [], marker=marker, label=ending, **grey))
    place = {"bbox_to_anchor": (_LEFT / _WIDTH - 0.006, 0.925), "borderpad": 0.0}
    spacing = {"columnspacing": 1.3, "handletextpad": 0.5, "handlelength": 1.6}
    figure.legend(
        handles=handles, loc="upper left", ncols=10, fontsize=8.5, frameon=False, **place, **spacing
    )
