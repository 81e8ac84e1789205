"""The axes of the figure: limits, scales, labels, shaded segments, the clip limit, broken steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pilot.report.curves import DIVERGED, LARGEST, Curve, Series
from pilot.view import PilotView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOG_SPAN = 20.0  # a loss that grows by more than this over its median is shown on a log axis
_LOG_RATES = 100.0  # rates further apart than this are shown on a log axis
_BROKEN = "#b2182b"
_SHADES = {"warm-up": "#dedede", "peak": "#faf7ef", "decay": "#eeeeee", "cool-down": "#d3e2ee"}


class Panels(NamedTuple):
    """The axes from top to bottom; the names are those of the step record."""

    loss: Axes
    grad_norm: Axes
    clip_coef: Axes
    relative_update: Axes
    learning_rate: Axes


def finish(view: PilotView, panels: Panels, curves: Sequence[Curve], broken: Sequence[int]) -> None:
    """Scale, label and shade the axes after their curves are drawn.

    The baseline (or, where it diverged, the arms that did not) sets the limits; others may add its
    span once more on each side, so that an arm that diverges flattens nobody. A loss that explodes
    with nobody to compare gets a log axis (symlog when it has negative values). Axes without one
    finite value say so. ``broken`` steps (non-finite) are marked at the upper border.
    """
    _scale_loss(panels.loss, curves)
    for name in ("grad_norm", "relative_update"):
        axes: Axes = getattr(panels, name)
        if len(_drawn(axes)):
            axes.set_yscale("log")
            _limit(axes, curves, name, is_log=True)
            _log_ticks(axes)
    panels.clip_coef.set_ylim(-0.04, 1.08)
    panels.clip_coef.set_yticks([0, 0.5, 1])
    _scale_rate(panels.learning_rate, curves)
    for axes in panels:
        if not len(_drawn(axes)):
            axes.text(0.5, 0.5, "no finite values", transform=axes.transAxes, ha="center")
            axes.set_yticks([])
    _label(panels)
    _draw_clip_limit(panels.grad_norm, view)
    _draw_segments(view, panels)
    _draw_broken(broken, (panels.loss, panels.grad_norm))


def _label(panels: Panels) -> None:
    panels.loss.set_ylabel("loss")
    panels.grad_norm.set_ylabel("grad norm\nbefore clip")
    panels.clip_coef.set_ylabel("clip\ncoefficient")
    panels.relative_update.set_ylabel("relative\nupdate")
    panels.learning_rate.set_ylabel("learning\nrate")
    panels.learning_rate.set_xlabel("step of the full run")


def _scale_loss(axes: Axes, curves: Sequence[Curve]) -> None:
    trusted = _trusted(curves, "loss")
    values = trusted if len(trusted) else _drawn(axes)
    is_log = False
    if len(values) and values.max() > _LOG_SPAN * np.median(values) and values.min() > 0:
        axes.set_yscale("log")
        is_log = True
    elif len(values) and values.max() - values.min() > 1e6:
        axes.set_yscale("symlog", linthresh=1.0)
        return
    _limit(axes, curves, "loss", is_log=is_log)
    if is_log:
        _log_ticks(axes)


def _scale_rate(axes: Axes, curves: Sequence[Curve]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    rates = [c.series["learning_rate"] for c in curves]
    positive = [float(rate[rate > 0].max()) for rate in rates if (rate > 0).any()]
    if positive and max(positive) > _LOG_RATES * min(positive):
        axes.set_yscale("log", nonpositive="mask")  # a warm-up begins at 0
        axes.set_ylim(0.05 * min(positive), 1.6 * max(positive))
    else:
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))


def _plain(value: float) -> str:
    """A tick as short as it can be: ``0.5``, ``1.5e-3``, ``3e-5``."""
    if value == 0 or 0.01 <= abs(value) < 1e4:
        return f"{value:.3g}"
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def _trusted(curves: Sequence[Curve], name: str) -> Series:
    """The finite values that must be seen whole; empty when everything diverged."""
    sound = [c for c in curves if c.ending != DIVERGED]
    baseline = [c.series[name] for c in sound if c.is_baseline]
    parts = baseline or [c.smooth[name] for c in sound]
    values = np.concatenate(parts) if parts else np.empty(0)
    return values[np.isfinite(values)]


def _limit(axes: Axes, curves: Sequence[Curve], name: str, *, is_log: bool) -> None:
    """Robust limits: the trusted values, and of the others what lies within their span again."""
    trusted, drawn = _trusted(curves, name), _drawn(axes)
    if is_log:
        trusted, drawn = np.log10(trusted[trusted > 0]), np.log10(drawn[drawn > 0])
    if not len(trusted) or not len(drawn):
        return
    low, high = float(trusted.min()), float(trusted.max())
    room = max(high - low, 0.3 if is_log else 1e-3 * abs(high))
    smooth = [c.smooth[name] for c in curves] + [_validated(c) for c in curves if name == "loss"]
    others = np.concatenate(smooth)
    others = others[np.isfinite(others) & (others > 0 if is_log else True)]
    others = np.log10(others) if is_log else others
    if len(others):
        low = min(low, max(float(others.min()), low - room))
        high = max(high, min(float(others.max()), high + room))
    edge = 0.05 * max(high - low, 1e-12, 1e-6 * abs(high))
    bottom, top = low - edge, high + edge
    axes.set_ylim(*((10**bottom, 10**top) if is_log else (bottom, top)))


def _validated(curve: Curve) -> Series:
    return np.array([v.loss for v in curve.validations], dtype=np.float64).clip(-LARGEST, LARGEST)


def _log_ticks(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_ylim()
    span = high / low
    if span < 100:  # two decades: plain numbers instead of powers, and enough of them
        subs = (1.0, 2.0, 5.0) if span > 5 else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _drawn(axes: Axes) -> Series:
    """All finite y values on the axes."""
    drawn = [np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.get_lines()]
    values = np.concatenate(drawn) if drawn else np.empty(0)
    return values[np.isfinite(values)]


def _draw_clip_limit(axes: Axes, view: PilotView) -> None:
    limit = (view.config.get("optim") or {}).get("max_grad_norm")
    if not isinstance(limit, (int, float)) or not 0 < limit < LARGEST or not len(_drawn(axes)):
        return
    low, high = axes.get_ylim()
    if limit < low:  # the line belongs to the picture: it says how much is clipped
        axes.set_ylim(0.93 * limit, high)
    axes.axhline(limit, color="black", ls=":", lw=1.1, zorder=4)
    axes.annotate(
        f"clipped above {limit:g}",
        (0.995, limit),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        zorder=6,
        annotation_clip=True,
        bbox={"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 1},
    )


def _draw_segments(view: PilotView, panels: Panels) -> None:
    plan = view.plan
    last = max((segment.last_step for segment in plan.segments), default=plan.stop_step)
    margin = 0.015 * max(1, last - plan.start_step)
    for axes in panels:
        axes.set_xlim(plan.start_step - margin, last + margin)
        axes.grid(axis="y", color="#bbbbbb", lw=0.5, alpha=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelbottom=axes is panels[-1], labelsize=8.5)
        for segment in plan.segments:
            shade = _SHADES.get(segment.name, "none")
            first, end = segment.first_step - 0.5, segment.last_step + 0.5
            axes.axvspan(first, end, facecolor=shade, edgecolor="none", zorder=0)
    top = panels.loss.get_xaxis_transform()
    for segment in plan.segments:
        middle = (segment.first_step + segment.last_step) / 2
        panels.loss.text(middle, 1.012, segment.name, transform=top, ha="center", fontsize=9)


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
