"""The axes of the figure: scales, labels, shaded segments, the clip limit, non-finite steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pilot.view import PilotView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST = 1e100  # what is beyond has no place on an axis, whose arithmetic would overflow
_LOG_SPAN = 20.0  # a loss that grows by more than this over its median is shown on a log axis
_BROKEN = "#b2182b"
_SHADES = {"warm-up": "#d9d9d9", "cool-down": "#cfe0ee", "decay": "#eeeeee"}


def finish(view: PilotView, all_axes: tuple[Axes, Axes, Axes], broken_steps: Sequence[int]) -> None:
    """Label and scale the axes of loss, grad norm and rate after their curves are drawn.

    A loss that explodes gets a log axis (symlog when it has negative values); axes without one
    finite value say so. ``broken_steps`` (non-finite) are marked at the upper border.
    """
    loss, norm, rate = all_axes
    loss.set_ylabel("loss")
    norm.set_ylabel("grad norm\n(before clipping)")
    rate.set_ylabel("learning rate")
    rate.set_xlabel("step of the full run")
    rate.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    values = _drawn(loss)
    if len(values) and values.max() > _LOG_SPAN * np.median(values) and values.min() > 0:
        _log_axis(loss)
    elif len(values) and values.max() - values.min() > 1e6:
        loss.set_yscale("symlog", linthresh=1.0)
    if len(_drawn(norm)):
        _log_axis(norm)
    for axes in all_axes:
        if not len(_drawn(axes)):
            axes.text(0.5, 0.5, "no finite values", transform=axes.transAxes, ha="center")
            axes.set_yticks([])
    _draw_clip_limit(norm, view)
    _draw_segments(view, all_axes)
    _draw_broken(broken_steps, (loss, norm))


def _log_axis(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    values = _drawn(axes)
    span = values.max() / values.min()
    if span < 100:  # two decades: plain numbers instead of powers, and enough of them
        subs = (1.0, 2.0, 5.0) if span > 5 else tuple(float(digit) for digit in range(1, 10))
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _drawn(axes: Axes) -> npt.NDArray[np.float64]:
    """All finite y values on the axes."""
    drawn = [np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.get_lines()]
    values = np.concatenate(drawn) if drawn else np.empty(0)
    return values[np.isfinite(values)]


def _draw_clip_limit(axes: Axes, view: PilotView) -> None:
    limit = (view.config.get("optim") or {}).get("max_grad_norm")
    if not isinstance(limit, (int, float)) or not 0 < limit < LARGEST or not len(_drawn(axes)):
        return
    axes.axhline(limit, color="black", ls=":", lw=1.3, zorder=4)
    axes.annotate(
        f"clipped above {limit:g}",
        (0.995, limit),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        fontsize=8.5,
        zorder=6,
        bbox={"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 1},
    )


def _draw_segments(view: PilotView, all_axes: Sequence[Axes]) -> None:
    plan = view.plan
    last = max((segment.last_step for segment in plan.segments), default=plan.stop_step)
    margin = 0.015 * max(1, last - plan.start_step)
    for axes in all_axes:
        axes.set_xlim(plan.start_step - margin, last + margin)
        axes.grid(axis="y", color="#bbbbbb", lw=0.5, alpha=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelbottom=axes is all_axes[-1])
        for segment in plan.segments:
            shade = _SHADES.get(segment.name, "none")
            first, end = segment.first_step - 0.5, segment.last_step + 0.5
            axes.axvspan(first, end, facecolor=shade, edgecolor="none", zorder=0)
    top = all_axes[0].get_xaxis_transform()
    for segment in plan.segments:
        middle = (segment.first_step + segment.last_step) / 2
        all_axes[0].text(middle, 1.012, segment.name, transform=top, ha="center", fontsize=9)


def _draw_broken(steps: Sequence[int], all_axes: Sequence[Axes]) -> None:
    """Mark the steps without finite values at the upper border."""
    for axes in all_axes if steps else ():
        axes.axvline(steps[0], color=_BROKEN, lw=0.9, ls="-.", zorder=1)
        axes.plot(
            steps,
            [0.97] * len(steps),
            transform=axes.get_xaxis_transform(),
            color=_BROKEN,
            marker="x",
            markersize=7,
            markeredgewidth=2,
            ls="none",
            clip_on=False,
            zorder=6,
        )
