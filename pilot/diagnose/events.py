"""The events of a run as an aligned table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from pilot.diagnose.plain import kind_words, series_words, step_word
from pilot.report.blocks import Col, table
from pilot.report.words import number
from pilot.series.types import FAIL, LOSS, NOTE, SKIPPED, WARN, Event, Trace

MAX_EVENTS = 12
NARROW_COLUMNS = 72  # below, the table would break numbers: each event gets lines of its own
SEVERITY_WORDS = {FAIL: "FAIL", WARN: "warning", NOTE: "note"}
_STYLES = {FAIL: "bold red", WARN: "yellow"}


def event_lines(events: Sequence[Event], trace: Trace, columns: int) -> list[RenderableType]:
    """The events, in their order, for ``columns``: at most twelve, and how many more there are."""
    shown, rest = events[:MAX_EVENTS], events[MAX_EVENTS:]
    made: list[RenderableType] = []
    if columns < NARROW_COLUMNS:
        made += [line for event in shown for line in _narrow(event, trace)]
    else:
        made.append(_wide(shown, trace))
    if rest:
        counts = Counter(SEVERITY_WORDS.get(e.severity, e.severity) for e in rest)
        parts = ", ".join(f"{count} x {word}" for word, count in counts.items())
        made.append(Text(f"  and {len(rest)} more ({parts}); --json lists all"))
    return made


def _wide(events: Sequence[Event], trace: Trace) -> RenderableType:
    made = table(
        Col("  event", may_wrap=True),
        Col("severity"),
        Col(f"{step_word(trace)}s", "right"),
        Col("back at", "right"),
        Col("size", "right"),
        Col("sure"),
    )
    for event in events:
        word = SEVERITY_WORDS.get(event.severity, event.severity)
        made.add_row(
            Text(f"  {name(event, trace)}"),
            Text(word, style=_STYLES.get(event.severity, "")),
            *(Text(cell) for cell in (steps(event), back(event), size(event), event.confidence)),
        )
    return made


def name(event: Event, trace: Trace) -> str:
    """The kind, and its series where the kind does not say it."""
    if event.series == SKIPPED:
        return "no update made" if event.kind == "nonfinite_first_step" else "updates skipped"
    words, kind = series_words(trace, event.series), kind_words(event.kind)
    if words.startswith("validation loss") and kind.startswith("validation"):
        words = words.removeprefix("validation loss").strip(" ()")
    is_said = event.series == LOSS or not words or words in kind
    return kind if is_said else f"{kind} ({words})"


def _narrow(event: Event, trace: Trace) -> list[RenderableType]:
    word = SEVERITY_WORDS.get(event.severity, event.severity)
    head = Text.assemble("  ", (word, _STYLES.get(event.severity, "")), f" {name(event, trace)}")
    parts = [f"{step_word(trace)} {steps(event)}"]
    parts += [f"back {back(event)}"] if back(event) != "-" else []
    parts += [size(event)] if size(event) != "-" else []
    return [head, Padding(Text(f"{', '.join(parts)}, {event.confidence}"), (0, 0, 0, 4))]


def steps(event: Event) -> str:
    """``890-1400``, or ``319`` for a single step."""
    one = event.first_step == event.last_step
    return str(event.first_step) if one else f"{event.first_step}-{event.last_step}"


def back(event: Event) -> str:
    """The step at which the series was back, ``never``, ``not yet``, or ``-``: no meaning."""
    if event.recovered_step is not None:
        return str(event.recovered_step)
    if event.is_open:
        return "not yet"
    return "never" if event.kind == "never_recovers" else "-"


def size(event: Event) -> str:
    """Percent of the level, and robust standard deviations: ``+12 %, 8 sd``."""
    parts = []
    if event.size_frac is not None and math.isfinite(event.size_frac):
        parts.append(percent(event.size_frac))
    if event.size_sigma is not None and math.isfinite(event.size_sigma):
        sigma = event.size_sigma
        parts.append(f"{sigma:.0f} sd" if 10 <= abs(sigma) < 1e5 else f"{number(sigma)} sd")
    return ", ".join(parts) or "-"


def percent(fraction: float) -> str:
    """``+12 %``; from ten times on as a factor, ``x 25``."""
    if fraction >= 9:
        return f"x {number(1 + fraction)}"
    return f"{100 * fraction:+.0f} %" if abs(fraction) >= 0.1 else f"{100 * fraction:+.2g} %"
