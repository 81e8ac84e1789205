"""How sure a diagnosis is, and what that rests on."""

from __future__ import annotations

from pilot.diagnose.numbers import interval, num_points, series_of
from pilot.diagnose.plain import counted, series_words, step_word
from pilot.series.types import GRAD_NORM, LOSS, Event, Trace

_RISES = (  # kinds that a gradient norm can announce
    "single_spike",
    "consecutive_spikes",
    "never_recovers",
    "level_shift",
)
# What is undecided when the log ends within an event: damage is damage, but it may still pass.
_OPEN_LATER = "open is only whether it comes back after the end of the log"
_OPEN_STILL = "open is whether it comes back or stays: the log ends too soon"
_OPEN = {kind: _OPEN_LATER for kind in ("early_damage", "never_recovers", "slow_divergence")}
# A value that is not finite needs no more steps to be sure of.
_PLAIN_KINDS = ("nonfinite", "nonfinite_first_step", "zero_loss")


def how_sure(event: Event | None, trace: Trace) -> str:
    """Confidence of the deciding event, and the points, the interval and the gradient norm."""
    reasons = [basis(trace, event)]
    if event is None or event.series in trace.train:
        reasons += _of_the_gradient(event, trace)
    if event is not None and event.is_open and event.kind not in _PLAIN_KINDS:
        reasons.append(_OPEN.get(event.kind, _OPEN_STILL))
    level = f"{event.confidence}: " if event is not None else ""
    return level + "; ".join(reasons)


def _of_the_gradient(event: Event | None, trace: Trace) -> list[str]:
    if event is None or event.kind not in (*_RISES, "slow_divergence"):
        return []
    if GRAD_NORM not in trace.train:
        return ["no gradient norm to confirm it"]
    if event.kind not in _RISES:
        return []  # a creep has no first high record that a jump could come before
    lead = event.grad_norm_lead_steps
    if lead is None:
        return ["no jump of the gradient norm before it was seen"]
    when = f"{counted(lead, step_word(trace))} before" if lead > 0 else "together with"
    return [f"the gradient norm rose {when} the loss"]


def basis(trace: Trace, event: Event | None = None) -> str:
    """How many points of what (of the event's validation set, if it is one), how far apart."""
    if event is not None and event.series not in trace.train:
        points = num_points(series_of(trace, event.series))
        return f"{counted(points, 'value')} of the {series_words(trace, event.series)}"
    name, every = step_word(trace), interval(trace)
    apart = f"one every {every} {name}s" if every > 1 else f"one every {name}"
    if LOSS in trace.train:
        return f"{counted(num_points(trace.train[LOSS]), 'point')} of the loss, {apart}"
    most = max(
        (num_points(s) for s in (*trace.train.values(), *trace.validations.values())), default=0
    )
    return f"{counted(most, 'point')}, {apart}, none of the training loss"
