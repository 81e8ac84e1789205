"""The figure of a pilot: loss, grad norm and learning rate of the baseline, with its arm.

Drawn with matplotlib's Agg canvas and without pyplot, so no state is left behind. Colours differ in
brightness and in line style: the figure reads the same in greyscale.
"""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pilot.plan import BEFORE, COOLDOWN_END, MID_PEAK, PEAK_END, RUN_END, WARMUP_END
from pilot.records import StepRecord
from pilot.report.axes import LARGEST, finish
from pilot.report.words import one_line
from pilot.view import ArmView, PilotView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = npt.NDArray[np.float64]

VERDICT_COLOURS = {"GO": "#2e7d32", "NO-GO": "#d32f2f", "INCONCLUSIVE": "#f9a825"}
_BASELINE, _ARM = "#14395e", "#e08214"
_MARKERS = {BEFORE: "o", WARMUP_END: "^", MID_PEAK: "^", PEAK_END: "s", RUN_END: "D"}
_MARKERS[COOLDOWN_END] = "D"
_STYLE = {"text.usetex": False, "font.size": 10.0, "axes.unicode_minus": False}


class _Curve(NamedTuple):
    steps: Series
    loss: Series
    grad_norm: Series
    learning_rate: Series


def draw(view: PilotView, verdict: Mapping[str, Any], out_dir: Path) -> list[Path]:
    """Draw ``baseline.png`` into ``out_dir`` (created if needed) and return the paths.

    Non-finite values leave a gap in their curve, a mark at the upper border and a count in the
    title; empty series give empty axes that say so. Values beyond 1e100 are drawn at 1e100.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / "baseline.png"
    with rc_context(_STYLE), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = _figure(view, verdict)
        FigureCanvasAgg(figure).print_png(path, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return [path]


def _figure(view: PilotView, verdict: Mapping[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 7.4), dpi=110)
    borders = {"left": 0.1, "right": 0.985, "top": 0.835, "bottom": 0.068}
    grid = figure.add_gridspec(3, 1, height_ratios=(3.0, 1.7, 1.0), hspace=0.12, **borders)
    loss = figure.add_subplot(grid[0])
    norm = figure.add_subplot(grid[1], sharex=loss)
    rate = figure.add_subplot(grid[2], sharex=loss)
    others = [arm for arm in view.arms.values() if arm is not view.baseline]
    lines = [(view.baseline, _BASELINE, "-", 3), *((arm, _ARM, "--", 2) for arm in others[:1])]
    for arm, colour, dashes, order in lines:
        if arm is not None:
            curve = _curve(arm)
            style: dict[str, Any] = {"color": colour, "ls": dashes, "zorder": order}
            _draw_loss(loss, arm, curve, style)
            positive = np.where(curve.grad_norm > 0, curve.grad_norm, np.nan)  # the axis is log
            norm.plot(curve.steps, positive, lw=1.2, **style)
            rate.plot(curve.steps, curve.learning_rate, lw=1.6, **style)
    finish(view, (loss, norm, rate), non_finite_steps(view.baseline))
    _titles(figure, view, verdict)
    figure.align_ylabels()
    if loss.get_legend_handles_labels()[0]:
        place = {"bbox_to_anchor": (0.092, 0.9), "borderpad": 0.0, "columnspacing": 1.4}
        figure.legend(loc="upper left", ncols=4, fontsize=8.5, frameon=False, **place)
    return figure


def _curve(arm: ArmView) -> _Curve:
    records: Sequence[StepRecord] = (*arm.steps, *arm.cooldown)

    def column(name: str) -> Series:
        values = np.array([getattr(record, name) for record in records], dtype=np.float64)
        values[~np.isfinite(values)] = np.nan
        return np.clip(values, -LARGEST, LARGEST)

    return _Curve(column("step"), column("loss"), column("grad_norm"), column("learning_rate"))


def smooth(values: Series, width: int) -> Series:
    """Centred running median over ``width`` points; the non-finite are left out, and stay NaN.

    A median, because one spike must neither vanish from the raw curve nor bend the smooth one.
    """
    half, smoothed = width // 2, np.full(len(values), np.nan)
    for index in np.flatnonzero(np.isfinite(values)):
        window = values[max(0, index - half) : index + half + 1]
        smoothed[index] = np.median(window[np.isfinite(window)])
    return smoothed


def _draw_loss(axes: Axes, arm: ArmView, curve: _Curve, style: dict[str, Any]) -> None:
    name = one_line(arm.job.title, 30)
    width = min(15, max(1, len(curve.steps) // 12) | 1)
    axes.plot(curve.steps, curve.loss, **{**style, "ls": "-", "lw": 0.7, "alpha": 0.4})
    median = f" (median of {width})" if width > 1 else ""
    smoothed = smooth(curve.loss, width)
    axes.plot(curve.steps, smoothed, lw=1.9, label=f"{name}, train{median}", **style)
    points = [v for v in arm.validations if v.primary and math.isfinite(v.loss)]
    label: str | None = f"{name}, validation"
    for point in points:
        axes.plot(
            [point.step],
            [min(max(point.loss, -LARGEST), LARGEST)],
            color=style["color"],
            marker=_MARKERS.get(point.at, "o"),
            markersize=7.5,
            markerfacecolor="white",
            markeredgewidth=1.7,
            ls="none",
            zorder=style["zorder"] + 2,
            label=label,
        )
        label = None


def non_finite_steps(arm: ArmView | None) -> list[int]:
    """The steps, cool-down included, whose loss, gradients or weights were not finite.

    A step with a non-finite gradient that the fp16 loss scaler skipped is ordinary and not listed.
    """
    if arm is None:
        return []
    return [r.step for r in (*arm.steps, *arm.cooldown) if not _is_finite(r)]


def _is_finite(record: StepRecord) -> bool:
    grads = record.finite_grads and math.isfinite(record.grad_norm)
    skipped = record.step_skipped and record.loss_scale is not None
    loss = record.finite_loss and math.isfinite(record.loss)
    return loss and record.finite_params and (grads or skipped)


def _titles(figure: Figure, view: PilotView, verdict: Mapping[str, Any]) -> None:
    word = one_line(verdict.get("verdict", ""), 20)
    colour = VERDICT_COLOURS.get(word, "black") if word != "INCONCLUSIVE" else "#8a5a00"
    broken = non_finite_steps(view.baseline)
    count = ""
    if broken:
        steps = "step" if len(broken) == 1 else "steps"
        count = f"  ·  {len(broken)} non-finite {steps} (x), first at {broken[0]}"
    common: dict[str, Any] = {"va": "top", "parse_math": False}
    figure.text(0.1, 0.985, word, color=colour, fontsize=14, weight="bold", **common)
    head = f"{one_line(view.plan.recipe, 40)}{count}"
    figure.text(0.985, 0.983, head, fontsize=10.5, ha="right", **common)
    why = textwrap.wrap(one_line(verdict.get("why", "")), 112, max_lines=2, placeholder=" ...")
    figure.text(0.1, 0.949, "\n".join(why), fontsize=9.5, color="#333333", **common)
