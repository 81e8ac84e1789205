"""Kinds, states and series in plain English, and what happened in one sentence with its numbers."""

from __future__ import annotations

from collections.abc import Callable

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
_FELL = 0.9  # of the first loss: the best before a jump is named when it is lower
_SERIES_WORDS = {LOSS: "loss", GRAD_NORM: "gradient norm", LEARNING_RATE: "learning rate"}


def kind_words(kind: str) -> str:
    """The kind of an event in plain English."""
    return KIND_WORDS.get(kind, one_line(kind.replace("_", " ")))


def state_words(state: str) -> str:
    """The state of a run in plain English."""
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
    norms = trace.train.get(GRAD_NORM)
    return teller(event, series, Names(series_words(trace, event.series), step_word(trace), norms))


_Teller = Callable[[Event, Series, Names], str]


def _rise(event: Event, series: Series, names: Names) -> str:
    """For everything that leaves a level: from, to, and back or not."""
    top = peak(series, event.first_step, event.last_step)
    before = level_before(series, event.first_step)
    if top and top[0] == event.first_step:
        start = f" from {number(before)}" if before is not None else ""
        text = f"the {names.series} jumped{start} to {number(top[1])} at {names.step} {top[0]}"
    else:
        start = f" of {number(before)}" if before is not None else ""
        text = f"the {names.series} left its level{start} at {names.step} {event.first_step}"
        text += f", reached {number(top[1])} at {names.step} {top[0]}" if top else ""
    return text + _ending(event, series, names)


def _ending(event: Event, series: Series, names: Names) -> str:
    if event.recovered_step is not None:
        return f" and was back at {names.step} {event.recovered_step}"
    if event.kind != "never_recovers" and not event.is_open:
        return ""
    end, last = last_level(series), int(series.steps[-1])
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
    best, end = lowest(series), last_level(series, share=0.0)
    if best is None or end is None:
        return _rise(event, series, names)
    last, percent = int(series.steps[-1]), ""
    if best[1] > 0:
        percent = f" ({100 * (end / best[1] - 1):+.0f} %)"
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
