"""Kinds, states and series in plain English, and what happened in one sentence with its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pilot.diagnose.broken import Names, non_finite, zero
from pilot.diagnose.numbers import (
    between,
    first_value,
    last_level,
    level_before,
    lowest,
    num_points,
    peak,
    quarters,
    series_of,
)
from pilot.report.words import number, one_line
from pilot.series.limits import JUDGE_AFTER
from pilot.series.progress import RISING
from pilot.series.types import (
    GRAD_NORM,
    LEARNING_RATE,
    LOSS,
    LOSS_SCALE,
    NOTE,
    SKIPPED,
    Event,
    Series,
    Trace,
)

KIND_WORDS = {
    "single_spike": "one spike",
    "consecutive_spikes": "spikes in a row",
    "never_recovers": "never recovers",
    "level_shift": "shift of the level",
    "slow_divergence": "slow divergence",
    "nonfinite_first_step": "NaN or inf from the first step",
    "nonfinite": "NaN or inf",
    "zero_loss": "loss 0, nothing is learned",
    "grad_norm_alarm": "gradient norm jump",
    "grad_norm_trend": "growing gradient norm",
    "early_damage": "damage at the start",
    "no_progress": "no progress",
    "validation_not_improving": "validation does not improve",
    "validation_worsening": "validation gets worse",
}
STATE_WORDS = {
    "healthy": "healthy",
    "unstable": "unstable",
    "diverged": "diverged",
    "dead": "dead",
    "no_progress": "not learning",
    "overfitting": "overfitting",
    "too_short": "too short to judge",
    "unreadable": "not readable",
}
_RISING = 1.05  # x the highest of the records that decided: it rises still
_AT_TOP = 0.9  # of the highest of all: and has not turned
_END_SHARE = 0.02  # of the records: the level at the end of a log
_FELL = 0.9  # of the first loss: the best before a jump is named when it is lower
_SERIES_WORDS = {LOSS: "loss", GRAD_NORM: "gradient norm", LEARNING_RATE: "learning rate"}


def kind_words(kind: str) -> str:
    """The kind of an event in plain English."""
    return KIND_WORDS.get(kind, one_line(kind.replace("_", " ")))


def state_words(state: str, *, levelled: bool = True) -> str:
    """The state of a run in plain English; a loss without a level cannot show health."""
    if state == "healthy" and not levelled:
        return "no NaN seen; this loss cannot show more"
    return STATE_WORDS.get(state, one_line(state.replace("_", " ")))


def series_words(trace: Trace, name: str) -> str:
    """The name of a series for people: ``loss``, ``gradient norm``, ``validation loss (set)``."""
    if name in trace.train or name in _SERIES_WORDS:
        return _SERIES_WORDS.get(name, one_line(name.replace("_", " ")))
    shown = one_line(name.removeprefix("validation").lstrip("/:"), 40)
    return f"validation loss ({shown})" if shown else "validation loss"


def counted(number_of: int, word: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number_of} {word}{'' if number_of == 1 else 's'}"


def step_word(trace: Trace) -> str:
    """What the numbers on the axis are called: ``record`` where the log names no step."""
    return {"records": "record", "epochs": "epoch"}.get(trace.axis, "step")


def happened(event: Event, trace: Trace) -> str:
    """One sentence on an event: what, where, from which value to which (of the log itself)."""
    series = series_of(trace, event.series)
    if series is None or not num_points(series) or event.series in (LOSS_SCALE, SKIPPED):
        return one_line(event.detail) or f"{kind_words(event.kind)} at {event.first_step}"
    teller = _TELLERS.get(event.kind, _rise)
    names = Names(series_words(trace, event.series), step_word(trace), trace.train.get(GRAD_NORM))
    return teller(event, series, names) + _followed(event, trace)


def _followed(event: Event, trace: Trace) -> str:
    """What the loss did after a jump of the gradient norm."""
    loss = trace.train.get(LOSS)
    if event.kind != "grad_norm_alarm" or event.severity == NOTE or loss is None:
        return ""
    start = event.first_step
    top, before = peak(loss, start, event.last_step), level_before(loss, start)
    if top is None or before is None:
        return ""
    where = f"{step_word(trace)} {top[0]}"
    return f"; the loss followed, {number(before)} to {number(top[1])} at {where}"


_Teller = Callable[[Event, Series, Names], str]


def _rise(event: Event, series: Series, names: Names) -> str:
    """For everything that leaves a level: from, to, and back or not."""
    top = peak(series, event.first_step, _judged(event, series))
    before = level_before(series, event.first_step)
    start = f" from {number(before)}" if before is not None else ""
    if top and event.first_step == int(series.steps[-1]):
        text = f"the {names.series} jumped{start} to {number(top[1])} at the last record"
        return f"{text} ({names.step} {top[0]}); the log ends there"
    if top and top[0] == event.first_step:
        text = f"the {names.series} jumped{start} to {number(top[1])} at {names.step} {top[0]}"
    else:
        start = f" of {number(before)}" if before is not None else ""
        text = f"the {names.series} left its level{start} at {names.step} {event.first_step}"
        end, last = _end(event, series), int(series.steps[-1])
        if event.kind == "never_recovers" and top and end > _RISING * top[1] > 0.0:
            top = peak(series, event.first_step, last)
            if top and end >= _AT_TOP * top[1]:
                ending = f"{number(end)} at the end ({names.step} {last})"
                return f"{text} and is still rising: {ending}"
        text += f", reached {number(top[1])} at {names.step} {top[0]}" if top else ""
    return text + _ending(event, series, names)


def _judged(event: Event, series: Series) -> int:
    """The last step of the records that decided: an event that stays goes on without a new peak."""
    if event.kind != "never_recovers":
        return event.last_step
    steps = series.steps[series.steps >= event.first_step][:JUDGE_AFTER]
    return min(event.last_step, int(steps[-1])) if len(steps) else event.last_step


def _end(event: Event, series: Series) -> float:
    """The level at the end of the log, out of records of the event and after it only."""
    last = int(series.steps[-1])
    inside = between(series, event.first_step, last)
    share = math.ceil(_END_SHARE * num_points(series, fine=True))
    return float(np.median(inside[-share:])) if len(inside) else math.nan


def _ending(event: Event, series: Series, names: Names) -> str:
    if event.recovered_step is not None:
        return f" and was back at {names.step} {event.recovered_step}"
    if event.kind != "never_recovers" and not event.is_open:
        return ""
    end, last = _end(event, series), int(series.steps[-1])
    word = "was not back when the log ended" if event.is_open else "never came back"
    return f" and {word}: {number(end)} at the end ({names.step} {last})"


def _shift(event: Event, series: Series, names: Names) -> str:
    before, end = level_before(series, event.first_step), last_level(series, event.last_step)
    if before is None or end is None:
        return _rise(event, series, names)
    text = f"the {names.series} moved from {number(before)} to {number(end)}"
    return f"{text} at {names.step} {event.first_step}" + _ending(event, series, names)


def _creep(event: Event, series: Series, names: Names) -> str:
    before, end = level_before(series, event.first_step), last_level(series, event.last_step)
    if before is None:
        before = first_value(series)
    where = f"between {names.step}s {event.first_step} and {event.last_step}"
    numbers = f" from {number(before)} to {number(end)}"
    grew = "grew" if event.kind == "grad_norm_trend" else "grew slowly"
    ending = "" if event.kind == "grad_norm_trend" else _ending(event, series, names)
    return f"the {names.series} {grew}{numbers} {where}{ending}"


def _flat(event: Event, series: Series, names: Names) -> str:
    values = between(series, event.first_step, event.last_step)
    if len(values) and values.min() == values.max():
        text = f"the {names.series} is exactly {values[0]:.6g} at the last {len(values)} points"
        return f"{text}: nothing was updated"
    start, end = quarters(values)
    first = f"the {names.series} did not fall"
    first += " but rose" if event.hint == RISING else ""
    rest = ""
    if event.severity == NOTE:
        first = f"the {names.series} is flat in this window"
        rest = f"; the log begins at {names.step} {event.first_step}, what came before is not in it"
    return f"{first}: {number(start)} in the first quarter, {number(end)} in the last one{rest}"


def _early(event: Event, series: Series, names: Names) -> str:
    top, start = peak(series, event.first_step, event.last_step), first_value(series)
    best = lowest(series, before=event.first_step)
    text = f"the {names.series} started at {number(start)}"
    if best is not None and start is not None and best[1] < _FELL * start:
        text = f"the {names.series} fell to {number(best[1])} ({names.step} {best[0]})"
    rose = "jumped" if top and top[0] == event.first_step else "rose"
    text += f", {rose} to {number(top[1])} at {names.step} {top[0]}" if top else ""
    return text + _ending(event, series, names)


def _worse(event: Event, series: Series, names: Names) -> str:
    best, end, last = lowest(series), last_level(series, share=0.0), int(series.steps[-1])
    if best is None or end is None:
        return _rise(event, series, names)
    percent = f" ({100 * event.size_frac:+.0f} %)" if event.size_frac is not None else ""
    text = f"the {names.series} was best at {names.step} {best[0]} ({number(best[1])})"
    return f"{text} and is {number(end)} at {names.step} {last}{percent}"


def _not_better(event: Event, series: Series, names: Names) -> str:
    start, end = first_value(series), last_level(series, share=0.0)
    text = f"the {names.series} did not get better: {number(start)} at {names.step}"
    return f"{text} {int(series.steps[0])}, {number(end)} at {int(series.steps[-1])}"


_TELLERS: dict[str, _Teller] = {
    "level_shift": _shift,
    "slow_divergence": _creep,
    "grad_norm_trend": _creep,
    "nonfinite_first_step": non_finite,
    "nonfinite": non_finite,
    "zero_loss": zero,
    "no_progress": _flat,
    "early_damage": _early,
    "validation_worsening": _worse,
    "validation_not_improving": _not_better,
}
