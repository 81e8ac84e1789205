"""What the events of a run amount to: one state, and the event that decides it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pilot.series.limits import HIGH_SIGMA, LARGE_FRAC
from pilot.series.types import ALARM_STATES, FAIL, GRAD_NORM, LOW, NOTE, SKIPPED, Diagnosis, Event


def state_of(event: Event) -> str:
    """The state that one event alone makes of a run.

    dead: a loss of zero to the end, or no finite gradient ever. diverged: a loss that never
    recovers, slow divergence of 10 % or more, early damage that stays, non-finite to the end.
    unstable: the same, but recovered; spikes in a row, a grad norm alarm that the loss followed, or
    a single spike that is a warning; a shift of the level of 10 % and 4 sigma. no_progress: its
    event, or every update skipped while a scale is searched. A note makes none.
    """
    if event.severity == NOTE:
        return "healthy"
    lasting = event.recovered_step is None
    if event.kind == "zero_loss":
        return "dead" if lasting else "unstable"
    if event.kind in ("nonfinite", "nonfinite_first_step"):
        if event.severity != FAIL:
            never = event.kind == "nonfinite_first_step" and lasting
            return "no_progress" if never and event.confidence != LOW else "healthy"
        gradients = event.series in (GRAD_NORM, SKIPPED)
        if event.kind == "nonfinite_first_step" and gradients and lasting:
            return "dead"
        return "diverged" if lasting else "unstable"
    if event.kind in ("never_recovers", "slow_divergence", "early_damage"):
        if event.severity == FAIL:
            return "diverged" if lasting else "unstable"
        return "healthy" if (event.size_frac or 0.0) < LARGE_FRAC else "unstable"
    if event.kind == "level_shift":
        high = (event.size_sigma or 0.0) >= HIGH_SIGMA
        return "unstable" if high and (event.size_frac or 0.0) >= LARGE_FRAC else "healthy"
    if event.kind in ("consecutive_spikes", "single_spike", "grad_norm_alarm"):
        return "unstable"
    if event.kind == "no_progress":
        return "no_progress"
    return "overfitting" if event.kind.startswith("validation") else "healthy"


_KINDS = (
    "zero_loss",
    "nonfinite_first_step",
    "nonfinite",
    "never_recovers",
    "early_damage",
    "slow_divergence",
    "consecutive_spikes",
    "level_shift",
    "single_spike",
    "grad_norm_alarm",
)
_STAYING = ("never_recovers", "early_damage", "slow_divergence")
_ORDER = ("dead", "diverged", "unstable", "overfitting", "no_progress")


def diagnose(events: Sequence[Event], *, short: bool, empty: bool) -> Diagnosis:
    """The worst state of any event; without one ``too_short``, ``unreadable`` or ``healthy``.

    Among the events that make the same state: fail before warn, then by kind (a dead or
    non-finite loss, one that never recovers, damage at the start, slow divergence, spikes, the grad
    norm), then the larger in sigmas, then the earlier. Of one kind that stays (never recovers,
    damage at the start, slow divergence) the earliest with half the sigmas of the largest: later
    ones are the same rise going on, smaller ones before it only announced it.

    ``short``: too few records to call healthy; ``empty``: no record at all.
    """
    ordered = tuple(sorted(events, key=lambda event: event.first_step))
    for state in _ORDER:
        places = [i for i, event in enumerate(ordered) if state_of(event) == state]
        if places:
            main = min(places, key=_ranker(ordered, places))
            return Diagnosis(state=state, alarm=state in ALARM_STATES, events=ordered, main=main)
    state = "unreadable" if empty else "too_short" if short else "healthy"
    return Diagnosis(state=state, alarm=False, events=ordered)


def _ranker(
    events: Sequence[Event], places: Sequence[int]
) -> Callable[[int], tuple[bool, int, float, int]]:
    largest: dict[str, float] = {}
    for event in (events[i] for i in places):
        largest[event.kind] = max(largest.get(event.kind, 0.0), event.size_sigma or 0.0)

    def rank(place: int) -> tuple[bool, int, float, int]:
        event = events[place]
        kind = _KINDS.index(event.kind) if event.kind in _KINDS else len(_KINDS)
        sigmas = event.size_sigma or 0.0
        if event.kind in _STAYING and event.recovered_step is None:
            sigmas = min(sigmas, 0.5 * largest[event.kind])  # from half the largest on alike
        return (event.severity != FAIL, kind, -sigmas, event.first_step)

    return rank
