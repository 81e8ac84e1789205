"""What a person sees while a pilot runs: rich on a terminal, plain lines everywhere else.

Results (plan, verdict) go to stdout, progress and warnings to stderr. Markup is off: text that
comes from data or exceptions is shown as it is, without escape sequences. Colours only repeat what
words say.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.text import Text

from pilot.folder import Job
from pilot.plan import Plan
from pilot.records import Outcome, StepRecord
from pilot.report.colours import arm_title
from pilot.report.layout import verdict_blocks
from pilot.report.live import LiveLines, Meter, live_lines
from pilot.report.plan_layout import plan_blocks
from pilot.report.words import clean, human_secs, number, one_line
from pilot.series.types import Event

_PLAIN_EVERY_SECS = 10.0  # off a terminal: a line this often keeps an hour's log readable
_LIVE_EVERY_SECS = 0.1  # on a terminal: more often is not seen and costs time
_GOOD_ENDS = (Outcome.COMPLETED, Outcome.DECIDED, Outcome.IDENTICAL)
_UNNAMED_PHASES = ("", "run", "steps", "train", "training", "warm-up", "peak", "decay")


def make_terminal(stream: TextIO | None = None) -> Terminal:
    """A terminal on stdout and stderr, or with everything on ``stream``.

    ``NO_COLOR``, ``FORCE_COLOR``, ``TTY_COMPATIBLE`` and ``COLUMNS`` are honoured (by rich).
    """
    return Terminal(_console(stream, stderr=False), _console(stream, stderr=True))


def _console(stream: TextIO | None, *, stderr: bool) -> Console:
    target = stream or (sys.stderr if stderr else sys.stdout)
    if isinstance(target, io.TextIOWrapper):  # a stream in an old locale: a "?", never a crash
        target.reconfigure(errors="replace")
    return _Console(file=stream, stderr=stderr, markup=False, highlight=False, emoji=False)


class _Console(Console):
    """A console whose reader may go away (``| head``): the pilot goes on without showing it."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        self.file = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (as long as it lives)


class Terminal:
    """Shows a pilot. A live line for each running arm on a terminal, elsewhere plain lines."""

    def __init__(self, out: Console, err: Console) -> None:
        """``out`` gets results, ``err`` progress and warnings; ``make_terminal`` builds both."""
        self._out, self._err = out, err
        self._meters: dict[str, Meter] = {}
        self._live: LiveLines | None = None
        self._drawn = -math.inf

    def say(self, text: str) -> None:
        """A line on stdout; long ones are not broken, so that paths can be copied."""
        self._print(self._out, Text(clean(text)))

    def warn(self, text: str) -> None:
        """A line on stderr that starts with the word ``warning``."""
        self._print(self._err, Text.assemble(("warning: ", "bold yellow"), clean(text)))

    def plan(self, plan: Plan, survey: Mapping[str, Any]) -> None:
        """What will be trained, validated, kept and not measured; before anything is."""
        for block in plan_blocks(plan, survey):
            self._print(self._out, block)

    def arm_started(self, job: Job, num_steps: int) -> None:
        """``num_steps`` is what the arm has to do itself, the cool-down included."""
        name = one_line(arm_title(job))
        self._meters[job.arm] = Meter(num_steps, name)
        if self._err.is_terminal:
            self._draw(now=True)
        else:
            self._print(self._err, Text(f"{name} started: {num_steps} steps"))

    def arm_progress(self, job: Job, phase: str, record: StepRecord, elapsed_secs: float) -> None:
        """Show one step; ``elapsed_secs`` counts from the arm's start.

        A forked arm counts from its fork. NaN and inf are shown as words; off a terminal the first
        such step gets a line at once.
        """
        title = arm_title(job)
        first = job.start_step if job.fork_step is None else job.fork_step
        meter = self._meters.setdefault(job.arm, Meter(job.stop_step - first, title))
        done = max(0, record.step - first)
        is_first = meter.first_done is None
        rate, left = meter.update(done, elapsed_secs)
        meter.name = one_line(title if phase in _UNNAMED_PHASES else f"{title} {phase}", 24)
        counts = f"{done}/{meter.num_steps}"
        values = f"loss {number(record.loss)} grad {number(record.grad_norm)}"
        if not record.finite_params:
            values += " weights non-finite"
        speed = "" if rate is None else f" {number(rate)} steps/s ETA {human_secs(left)}"
        meter.line = f"{counts} {values}{speed}"
        if self._err.is_terminal:
            self._draw(now=is_first or done >= meter.num_steps)
        elif self._is_due(meter, record, done, elapsed_secs):
            rate_text = f"lr {record.learning_rate:.1e}"
            self._print(self._err, Text(f"{meter.name} {counts} {values} {rate_text}{speed}"))

    def arm_event(self, job: Job, event: Event) -> None:
        """A spike, shift or trend that was just found in a running arm."""
        kind = event.kind.replace("_", " ")
        text = f"{kind} at step {event.first_step}: {event.detail}"
        self._print(
            self._err, Text(f"{one_line(arm_title(job))}: {one_line(text)}", style="yellow")
        )
        self._draw(now=True)

    def arm_finished(self, job: Job, outcome: Outcome | None, secs: float) -> None:
        """How an arm ended; ``outcome`` none: its process died without a result."""
        self._meters.pop(job.arm, None)
        text = f"{one_line(arm_title(job))} {_ending(outcome)} ({human_secs(secs)})"
        bad = outcome is None or outcome.status not in _GOOD_ENDS
        self._print(self._err, Text(text, style="yellow" if bad else ""))
        self._draw(now=True)

    def arm_not_run(self, job: Job, reason: str) -> None:
        """Why an arm is not run, or not further: identical, left out or lost."""
        self._meters.pop(job.arm, None)
        self._print(self._err, Text(f"{one_line(arm_title(job))}: {one_line(reason)}"))
        self._draw(now=True)

    def verdict(self, verdict: Mapping[str, Any], root: Path) -> None:
        """The verdict, its gates, what to do next and where the report lies."""
        for block in verdict_blocks(verdict, root):
            self._print(self._out, block)

    def close(self) -> None:
        """Remove the live line and give the cursor back; a second call does nothing."""
        self._pause()

    def __enter__(self) -> Terminal:
        """Use as a context: closed at its end."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    def _is_due(self, meter: Meter, record: StepRecord, done: int, elapsed_secs: float) -> bool:
        broken = not (record.finite_loss and record.finite_grads and record.finite_params)
        due = elapsed_secs - meter.printed_secs >= _PLAIN_EVERY_SECS or done == meter.num_steps
        if not due and not (broken and not meter.said_non_finite):
            return False
        meter.printed_secs = elapsed_secs
        meter.said_non_finite = meter.said_non_finite or broken
        return True

    def _draw(self, *, now: bool) -> None:
        """Draw the live lines again, at most ten times a second unless ``now``."""
        secs = time.monotonic()
        if not self._meters or not self._err.is_terminal:
            return
        if not now and secs - self._drawn < _LIVE_EVERY_SECS:
            return
        self._drawn = secs
        if self._live is None:
            self._live = live_lines(self._err)
        self._live.show(self._meters)

    def _pause(self) -> None:
        if self._live is not None:
            self._live.stop()
        self._live = None
        self._drawn = -math.inf

    def _print(self, console: Console, block: RenderableType) -> None:
        self._pause()
        with contextlib.suppress(OSError):  # showing is a projection: it never costs a result
            self._show(console, block)

    def _show(self, console: Console, block: RenderableType) -> None:
        if isinstance(block, Text):  # commands and paths: the terminal wraps, a file keeps the line
            console.print(block, soft_wrap=True)
        elif console.is_terminal:
            console.print(block)
        else:
            with console.capture() as captured:
                console.print(block)
            lines = captured.get().rstrip("\n").split("\n")
            console.print(Text("\n".join(line.rstrip() for line in lines)), soft_wrap=True)


def _ending(outcome: Outcome | None) -> str:
    if outcome is None:
        return "ended without a result: see its log"
    if outcome.status == Outcome.COMPLETED:
        return f"completed at step {outcome.last_step}"
    if outcome.status == Outcome.DECIDED:
        return f"ended at step {outcome.last_step}: decided ({one_line(outcome.message, 60)})"
    if outcome.status == Outcome.IDENTICAL:
        why = one_line(outcome.message, 100).removesuffix(": identical")
        return f"identical to the baseline: {why}" if why else "identical to the baseline"
    if outcome.status == Outcome.STOPPED:
        return f"stopped at step {outcome.last_step}: non-finite, going on would measure nothing"
    what = "out of memory" if outcome.status == Outcome.OUT_OF_MEMORY else "exception"
    place = f" in {one_line(outcome.where)}" if outcome.where else ""
    step = f" at step {outcome.step}" if outcome.step is not None else ""
    message = one_line(f"{outcome.error_type}: {outcome.message}", 200)
    return f"ended by {what}{place}{step}: {message}"
