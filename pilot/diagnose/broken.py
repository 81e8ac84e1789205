"""What is not finite or exactly zero, in one sentence with its numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pilot.diagnose.numbers import bad_words, num_points, records_before
from pilot.report.words import number, one_line
from pilot.series.leadup import lead_up
from pilot.series.types import GRAD_NORM, LOSS, Event, Series


class Names(NamedTuple):
    """How the series and its steps are called in a sentence; the gradient norm, if logged."""

    series: str
    step: str
    grad_norm: Series | None


def non_finite(event: Event, series: Series, names: Names) -> str:
    """Where, how often, what moved before, and whether the series came back."""
    bad, all_points = num_points(series, event, finite=False), num_points(series)
    where, what = f"at {names.step} {event.first_step}", bad_words(series, event)
    if all_points == 1:
        return f"the only {names.series} in this log, {where}, is {what}"
    if event.series == GRAD_NORM and not num_points(series, fine=True):
        return f"no {names.series} is finite ({bad} of {all_points} records): no update was made"
    where = f"first {where}, last at {event.last_step}" if bad > 1 else where
    text = f"the {names.series} is {what} at {bad} of {all_points} points, {where}"
    if event.kind == "nonfinite_first_step":
        text = f"the {names.series} is {what} from the first logged {names.step} on"
        text += f" ({event.first_step} to {event.last_step})" if bad > 1 else ""
    text += _lead_up(event, series, names)
    if event.recovered_step is not None:
        return f"{text}; finite again at {names.step} {event.recovered_step}"
    last = int(series.steps[-1])
    if event.last_step < last:
        after = f"; no plausible value after it: {number(float(series.values[-1]))} at the end"
        return f"{text}{after} ({names.step} {last})" if event.is_open else text
    return f"{text}, to the end of the log" if bad > 1 else text


def _lead_up(event: Event, series: Series, names: Names) -> str:
    """What moved in the records before: the loss, the gradient norm."""
    if event.series != LOSS or event.kind != "nonfinite":
        return ""
    found = lead_up(records_before(series, names.grad_norm, event.first_step))
    parts = []
    for name, jump in ((names.series, found.loss), ("gradient norm", found.grad_norm)):
        if jump is not None:
            step, before, value = jump
            shown = number(value) if np.isfinite(value) else f"{value}"
            parts.append(f"the {name} rose from {number(before)} to {shown} at {names.step} {step}")
    return f"; before, {' and '.join(parts)}" if parts else ""


def zero(event: Event, series: Series, names: Names) -> str:
    """A loss of exactly 0, and the gradient norm beside it."""
    where = f"from {names.step} {event.first_step} to {event.last_step}"
    if event.first_step == event.last_step:
        where = f"at {names.step} {event.first_step}"
    own = series.values[(series.steps >= event.first_step) & (series.steps <= event.last_step)]
    if len(own) and own.any():
        where = f"at {int((own == 0.0).sum())} of {len(own)} points {where}"
    norms, text = names.grad_norm, f"the {names.series} is exactly 0 {where}"
    if norms is None or event.series != LOSS:
        return text if event.series == LOSS else one_line(event.detail)
    own = norms.values[(norms.steps >= event.first_step) & (norms.steps <= event.last_step)]
    if len(own) and not np.isfinite(own).any():
        return f"{text}, with a gradient norm of NaN or inf"
    return f"{text}, and so is the gradient norm" if len(own) and not own.any() else text
