"""One panel of the picture: a series as a curve, its scale, and its broken points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pilot.diagnose.envelope import LARGEST, Shape, shape
from pilot.diagnose.numbers import Floats
from pilot.report.words import number, one_line
from pilot.series.types import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BROKEN = "#b2182b"
_LOG_SPAN = 20.0  # a loss that grows by more than this over its median gets a log axis
_SYMLOG_SPAN = 1e4  # a loss with values of 0 or below that spans more than this
_START_SHARE = 0.03  # the first points, from which a run falls steeply, may leave the axis
_START_RATIO = 0.45  # if the rest needs less than this of the whole height
_MAX_SETS = 6
_SET_STYLES = (
    ("#000000", "-", "o"),
    ("#1c6fc4", (0, (6, 2)), "s"),
    ("#c8330e", (0, (3, 1.6)), "^"),
    ("#8f5bb0", (0, (9, 2, 1.2, 2)), "D"),
    ("#6a6a6a", (0, (1, 1.4)), "v"),
    ("#a5a026", (0, (5, 1.6, 1.2, 1.6)), "P"),
)


def draw_loss(axes: Axes, series: Series, kept_from: int) -> Shape:
    """The loss, linear unless it explodes; returns what was drawn.

    The fall of the very first points may leave the axis at the top, said in a note, unless an
    event begins before step ``kept_from``.
    """
    made = shape(series)
    _curve(axes, made)
    axes.set_ylabel("loss")
    high, low = _finite(made.high), _finite(made.low)
    if not len(high):
        _say_empty(axes)
    elif low.min() > 0 and high.max() > _LOG_SPAN * float(np.median(_finite(made.median))):
        log_scale(axes, low, high)
    elif high.max() - low.min() > _SYMLOG_SPAN:
        axes.set_yscale("symlog", linthresh=1.0)
    else:
        _linear(axes, made, kept_from)
    _draw_broken(axes, made)
    return made


def draw_grad_norm(axes: Axes, series: Series) -> Shape:
    """The gradient norm on a log axis; zeros cannot be shown there and are counted."""
    made = shape(series)
    positive = {
        name: np.where(getattr(made, name) > 0, getattr(made, name), np.nan)
        for name in ("low", "high", "median")
    }
    low = positive["low"] if made.is_binned else positive["high"]
    shown = Shape(
        steps=made.steps,
        low=low,
        high=positive["high"],
        median=positive["median"],
        window=made.window,
        broken=made.broken,
    )
    _curve(axes, shown)
    axes.set_ylabel("gradient\nnorm")
    zeros = int((series.values == 0).sum())
    if len(_finite(shown.high)):
        log_scale(axes, _finite(shown.low), _finite(shown.high))
    else:
        _say_empty(axes, "always 0" if zeros else "no finite value")
    if zeros and len(_finite(shown.high)):
        _note(axes, f"{zeros} x 0", 0.86)
    _draw_broken(axes, shown)
    return shown


def draw_rate(axes: Axes, series: Series) -> None:
    """The learning rate as it is."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    made = shape(series)
    axes.plot(made.steps, made.median if made.is_binned else made.high, color="black", lw=1.3)
    axes.set_ylabel("learning\nrate")
    axes.margins(y=0.12)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def draw_validations(axes: Axes, sets: Mapping[str, Series]) -> None:
    """Each validation set with its own dashes and marker; six are drawn."""
    axes.set_ylabel("validation\nloss")
    shapes = {name: shape(series) for name, series in sets.items()}
    for (name, made), style in zip(shapes.items(), _SET_STYLES, strict=False):
        colour, dashes, marker = style
        many = len(made.steps) > 60
        axes.plot(
            made.steps,
            made.median if made.is_binned else made.high,
            color=colour,
            ls=dashes,
            lw=1.3,
            marker="" if many else marker,
            markersize=4,
            label=one_line(name, 28).lstrip("_") or "validation",  # "_x" would be left out
        )
    values = np.concatenate([_finite(made.high) for made in shapes.values()])
    if not len(values):
        _say_empty(axes)
    elif values.min() > 0 and values.max() > _LOG_SPAN * float(np.median(values)):
        log_scale(axes, values, values)
    if len(sets) > 1:
        title = f"{_MAX_SETS} of {len(sets)} sets" if len(sets) > _MAX_SETS else None
        key = axes.legend(fontsize=7.5, framealpha=0.7, edgecolor="none", ncols=3, title=title)
        for text in key.get_texts():
            text.set_parse_math(False)
    for made in shapes.values():
        _draw_broken(axes, made)


def log_scale(axes: Axes, low: Floats, high: Floats) -> None:
    """A log axis around all values, with plain numbers where it spans less than two decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    bottom, top = (np.log10(max(v, 1 / LARGEST)) for v in (low.min(), high.max()))
    edge = 0.06 * max(top - bottom, 0.3)
    axes.set_ylim(10 ** (bottom - edge), 10 ** (top + edge))
    if top - bottom < 2:
        subs: Sequence[float] = (1.0, 2.0, 5.0) if top - bottom > 0.7 else (1, 1.5, 2, 3, 5, 7)
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def short(value: float) -> str:
    """A tick as short as it can be: ``0.5``, ``1.5e-3``, ``3e-5``."""
    if value == 0 or 0.01 <= abs(value) < 1e4:
        return f"{value:.3g}"
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def _curve(axes: Axes, made: Shape) -> None:
    """Each point (or the band of a bin) faint, the running median on top."""
    if made.is_binned:
        axes.fill_between(made.steps, made.low, made.high, color="#b9b9b9", lw=0.5, zorder=2)
        axes.plot(made.steps, made.median, color="black", lw=1.1, zorder=4)
        return
    few = len(made.steps) <= 40
    marker = {"marker": "o", "markersize": 3.5} if few else {}
    alone = made.window <= 2
    axes.plot(
        made.steps,
        made.high,
        color="black" if alone else "#8c8c8c",
        lw=1.3 if alone else 0.7,
        zorder=3,
        **marker,  # type: ignore[arg-type]
    )
    if not alone:
        axes.plot(made.steps, made.median, color="black", lw=1.4, zorder=4)


def _linear(axes: Axes, made: Shape, kept_from: int) -> None:
    finite = np.isfinite(made.high)
    steps, high, low = made.steps[finite], made.high[finite], made.low[finite]
    start = max(1, int(_START_SHARE * len(high)))
    top, bottom, rest = high.max(), low.min(), high[start:]
    cut = len(rest) and rest.max() - bottom < _START_RATIO * (top - bottom)
    if cut and steps[start] < kept_from:
        _note(axes, f"begins at {number(float(high[0]))}, above this axis", 0.88)
        top = rest.max()
    edge = 0.06 * max(top - bottom, 1e-3 * abs(top), 1e-12)
    axes.set_ylim(bottom - edge, top + edge)


def _draw_broken(axes: Axes, made: Shape) -> None:
    """The steps with NaN or inf at the upper border."""
    if not len(made.broken):
        return
    axes.plot(
        made.broken,
        np.full(len(made.broken), 0.955),
        transform=axes.get_xaxis_transform(),
        color=BROKEN,
        marker="x",
        markersize=5.5,
        markeredgewidth=1.4,
        ls="none",
        zorder=6,
    )


def _note(axes: Axes, text: str, height: float) -> None:
    axes.text(
        0.995,
        height,
        text,
        transform=axes.transAxes,
        ha="right",
        va="center",
        fontsize=8,
        zorder=7,
        bbox={"facecolor": "white", "alpha": 0.8, "lw": 0, "pad": 1.2},
    )


def _say_empty(axes: Axes, text: str = "no finite value") -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center")
    axes.set_yticks([])


def _finite(values: Floats) -> Floats:
    kept: Floats = values[np.isfinite(values)]
    return kept
