"""How well ``diagnose`` names what happened in a folder of labelled logs.

Run: ``python -m tests.benchmarks.logs FOLDER [--traces FILE]``. FOLDER holds logs and an
``INDEX.tsv`` with the columns ``file``, ``label``, ``event_steps`` and ``alarm_expected`` (yes, no,
optional). FILE is a ``jsonl.gz`` of healthy runs, ``{"id": ..., "loss": [...]}`` a line.
Exit code 0 when every target is met, else 1.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pilot.diagnose.numbers import interval
from pilot.diagnose.study import Study, main_event, studies
from pilot.series.detect import detect
from pilot.series.types import FAIL, LOSS, NOTE, STATES, Event, Series, Trace

MIN_ALARM_SHARE = 64 / 67  # logs whose alarm is as labelled, of those labelled yes or no
MIN_KIND_SHARE = 0.9  # logs whose main kind fits the label, of those with an event
MAX_FALSE_PER_10K = 0.1  # events above a note per 10,000 healthy steps
STEP_SLACK = 2  # logging intervals
# The kinds that a label may be called; labels that are not here have no event.
KINDS_OF_LABEL: dict[str, tuple[str, ...]] = {
    "spikes_then_divergence": ("never_recovers", "consecutive_spikes", "slow_divergence"),
    "spike_then_permanent_jump": ("never_recovers", "level_shift"),
    "spikes_repeated_degraded": ("consecutive_spikes", "never_recovers", "level_shift"),
    "spike_slow_recovery": ("consecutive_spikes", "never_recovers"),
    "jump_permanent": ("never_recovers", "early_damage", "level_shift"),
    "jump_permanent_partial": ("never_recovers", "early_damage", "level_shift"),
    "diverging_from_start": ("never_recovers", "early_damage", "slow_divergence"),
    "diverge_nan": ("nonfinite", "nonfinite_first_step"),
    "loss_zero": ("zero_loss",),
    "loss_zero_gradnan": ("zero_loss", "nonfinite", "nonfinite_first_step"),
    "flat_no_progress": ("no_progress",),
    "eval_rising": ("validation_worsening", "validation_not_improving"),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One labelled log and what was found in it: its worst run counts."""

    file: str
    label: str
    alarm_expected: str
    event_steps: str
    state: str
    alarm: bool
    main: Event | None
    main_interval: int
    secs: float

    @property
    def kind_fits(self) -> bool:
        """Whether the main kind is one of the label's."""
        return self.main is not None and self.main.kind in KINDS_OF_LABEL[self.label]

    @property
    def step_fits(self) -> bool | None:
        """Whether the main event begins where the label says; none where it names no step."""
        places = stretches(self.event_steps)
        if not places or self.main is None:
            return None
        slack, first = STEP_SLACK * self.main_interval, self.main.first_step
        if self.label == "eval_rising":  # named by its lowest point and its end
            places = [(min(a for a, _ in places), max(b for _, b in places))]
        return any(low - slack <= first <= high + slack for low, high in places)


def stretches(text: str) -> list[tuple[int, int]]:
    """The whole numbers of a label as (first, last); decimals are values, not steps."""
    found = re.findall(r"(?<![\w.])(\d+)(?:-(\d+))?(?!\w|\.\d|\s*records)", text)
    return [(int(first), int(last or first)) for first, last in found]


def rows(folder: Path) -> Iterator[Row]:
    """Diagnose every file of the folder's ``INDEX.tsv``."""
    with (folder / "INDEX.tsv").open(encoding="utf-8", newline="") as file:
        entries = list(csv.DictReader(file, delimiter="\t"))
    event_steps = ""
    for entry in entries:
        if not entry["event_steps"].startswith("as previous"):  # the same run in another format
            event_steps = entry["event_steps"]
        begin = time.perf_counter()
        found = list(studies([str(folder / entry["file"])]))
        secs = time.perf_counter() - begin
        worst = min(found, key=_badness)
        event = main_event(worst)
        yield Row(
            file=entry["file"],
            label=entry["label"],
            alarm_expected=entry["alarm_expected"],
            event_steps=event_steps,
            state=worst.diagnosis.state,
            alarm=any(study.diagnosis.alarm for study in found),
            main=event,
            main_interval=_interval(worst, event),
            secs=secs,
        )


def _interval(study: Study, event: Event | None) -> int:
    """Steps between two points of the series that the main event is about."""
    trace = study.trace
    if trace is None:
        return 1
    own = trace.validations.get(event.series) if event is not None else None
    if own is None or len(own.steps) < 2:
        return interval(trace)
    return max(1, int(np.median(np.diff(np.unique(own.steps)))))


def _badness(study: Study) -> tuple[bool, bool, int]:
    found = study.diagnosis
    return not found.alarm, main_event(study) is None, STATES.index(found.state)


def confusion(found: Sequence[Row]) -> str:
    """Label by state, and expected by given alarm, as aligned text."""
    states = [state for state in STATES if any(row.state == state for row in found)]
    width = max(len(row.label) for row in found)
    lines = [f"{'label':<{width}}  " + "  ".join(states)]
    for label in sorted({row.label for row in found}):
        count = Counter(row.state for row in found if row.label == label)
        cells = "  ".join(f"{count[state] or '.':>{len(state)}}" for state in states)
        lines.append(f"{label:<{width}}  {cells}")
    lines += ["", f"{'alarm expected':<{width}}  given  not"]
    for expected in ("yes", "no", "optional"):
        count = Counter(row.alarm for row in found if row.alarm_expected == expected)
        lines.append(f"{expected:<{width}}  {count[True]:>5}  {count[False]:>3}")
    return "\n".join(lines)


def disagreements(found: Sequence[Row]) -> list[str]:
    """One line for each log whose alarm, kind or step is not the label's."""
    lines = []
    for row in found:
        wrong = []
        if row.alarm_expected in ("yes", "no") and row.alarm != (row.alarm_expected == "yes"):
            wrong.append(f"alarm {'given' if row.alarm else 'missing'}")
        if row.label in KINDS_OF_LABEL:
            if not row.kind_fits:
                wrong.append("kind")
            elif row.step_fits is False:
                wrong.append(f"step (label: {row.event_steps[:60]})")
        elif row.alarm_expected != "optional" and row.state not in ("healthy", "too_short"):
            wrong.append("state of a log without an event")
        if wrong:
            event = row.main
            what = f"{event.kind} {event.first_step}-{event.last_step}" if event else "no event"
            lines.append(f"{row.file}: {row.label}: {', '.join(wrong)}; {row.state}, {what}")
    return lines


def targets(found: Sequence[Row]) -> list[tuple[bool, str]]:
    """Each target with whether it is met."""
    judged = [row for row in found if row.alarm_expected in ("yes", "no")]
    right = sum(row.alarm == (row.alarm_expected == "yes") for row in judged)
    false_alarms = sum(row.alarm for row in judged if row.alarm_expected == "no")
    with_event = [row for row in found if row.label in KINDS_OF_LABEL]
    fits = sum(row.kind_fits for row in with_event)
    placed = [row for row in with_event if row.kind_fits and row.step_fits is not None]
    in_place = sum(bool(row.step_fits) for row in placed)
    made = [
        (right >= MIN_ALARM_SHARE * len(judged), f"alarm as labelled: {right} of {len(judged)}"),
        (false_alarms == 0, f"alarms on logs labelled no: {false_alarms}"),
        (
            fits >= MIN_KIND_SHARE * len(with_event),
            f"main kind fits: {fits} of {len(with_event)} logs with an event",
        ),
        (
            in_place >= MIN_KIND_SHARE * len(placed),
            f"first step in place: {in_place} of {len(placed)} whose label names steps",
        ),
    ]
    return made


def healthy(path: Path) -> tuple[bool, str]:
    """Events above a note on healthy traces, per 10,000 steps."""
    steps, false, fails, names = 0, 0, 0, []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            run = json.loads(line)
            values = np.array([np.nan if v is None else float(v) for v in run["loss"]])
            series = Series(steps=np.arange(1, len(values) + 1, dtype=np.int64), values=values)
            trace = Trace(
                source=run["id"], format="trace", axis="steps", train={LOSS: series}, objective="lm"
            )
            above = [e for e in detect(trace).events if e.severity != NOTE]
            names += [f"{run['id']} {e.kind} {e.first_step}-{e.last_step}" for e in above]
            steps, false = steps + len(values), false + len(above)
            fails += sum(event.severity == FAIL for event in above)
    rate = 1e4 * false / max(1, steps)
    text = f"healthy traces: {rate:.3f} events above a note per 10,000 steps ({false} in {steps}, "
    return rate <= MAX_FALSE_PER_10K and not fails, text + f"{fails} FAIL) {'; '.join(names)}"


def main() -> int:
    """Print tables, disagreements and targets; 0 when all targets are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--traces", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    found = list(rows(arguments.folder))
    print(confusion(found))
    print("\ndisagreements:", *(disagreements(found) or ["none"]), sep="\n  ")
    slow = max(found, key=lambda row: row.secs)
    total = sum(row.secs for row in found)
    print(f"\n{total / len(found):.2f} s per log, most {slow.secs:.2f} s ({slow.file})")
    checked = targets(found)
    if arguments.traces:
        checked.append(healthy(arguments.traces))
    for is_met, text in checked:
        print(f"{'met    ' if is_met else 'NOT MET'}  {text}")
    return 0 if all(is_met for is_met, _ in checked) else 1


if __name__ == "__main__":
    sys.exit(main())
