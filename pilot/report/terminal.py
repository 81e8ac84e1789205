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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from pilot.folder import Job
from pilot.plan import Plan
from pilot.records import Outcome, StepRecord
from pilot.report.layout import plan_blocks, verdict_blocks
from pilot.report.words import clean, human_secs, number, one_line

_PLAIN_EVERY_SECS = 10.0  # off a terminal: a line this often keeps an hour's log readable
_LIVE_EVERY_SECS = 0.1  # on a terminal: more often is not seen and costs time
_UNNAMED_PHASES = ("", "run", "steps", "train", "training", "warm-up", "peak", "decay")


@dataclass
class _Meter:
    """How far an arm is; the rate counts from the first record, without the start-up."""

    num_steps: int
    first_done: int | None = None
    first_secs: float = 0.0
    printed_secs: float = -math.inf
    said_non_finite: bool = False

    def update(self, done: int, elapsed_secs: float) -> tuple[float | None, float | None]:
        """Steps per second and seconds left, or none for what is not known yet."""
        if self.first_done is None:
            self.first_done, self.first_secs = done, elapsed_secs
        self.num_steps = max(self.num_steps, done)
        steps, secs = done - self.first_done, elapsed_secs - self.first_secs
        if steps <= 0 or secs <= 0:
            return None, None
        return steps / secs, (self.num_steps - done) * secs / steps


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
    """Shows a pilot. One live line on a terminal, one plain line now and then elsewhere."""

    def __init__(self, out: Console, err: Console) -> None:
        """``out`` gets results, ``err`` progress and warnings; ``make_terminal`` builds both."""
        self._out, self._err = out, err
        self._meters: dict[str, _Meter] = {}
        self._live: Progress | None = None
        self._task: TaskID | None = None
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
        """``num_steps`` is what the arm has to do in all, the cool-down included."""
        self._meters[job.arm] = _Meter(num_steps)
        if not self._err.is_terminal:
            self._print(self._err, Text(f"{one_line(job.title)} started: {num_steps} steps"))

    def arm_progress(self, job: Job, phase: str, record: StepRecord, elapsed_secs: float) -> None:
        """Show one step; ``elapsed_secs`` counts from the arm's start.

        NaN and inf are shown as words; off a terminal the first such step gets a line at once.
        """
        meter = self._meters.setdefault(job.arm, _Meter(job.stop_step - job.start_step))
        done = max(0, record.step - job.start_step)
        rate, left = meter.update(done, elapsed_secs)
        name = one_line(job.title if phase in _UNNAMED_PHASES else f"{job.title} {phase}", 24)
        counts = f"{done}/{meter.num_steps}"
        values = f"loss {number(record.loss)} grad {number(record.grad_norm)}"
        if not record.finite_params:
            values += " weights non-finite"
        speed = "" if rate is None else f" {number(rate)} steps/s ETA {human_secs(left)}"
        if self._err.is_terminal:
            self._draw(name, done, meter.num_steps, f"{counts} {values}{speed}")
        elif self._is_due(meter, record, done, elapsed_secs):
            rate_text = f"lr {record.learning_rate:.1e}"
            self._print(self._err, Text(f"{name} {counts} {values} {rate_text}{speed}"))

    def arm_finished(self, job: Job, outcome: Outcome | None, secs: float) -> None:
        """How an arm ended; ``outcome`` none: its process died without a result."""
        self._pause()
        self._meters.pop(job.arm, None)
        text = f"{one_line(job.title)} {_ending(outcome)} ({human_secs(secs)})"
        bad = outcome is None or outcome.status != Outcome.COMPLETED
        self._print(self._err, Text(text, style="yellow" if bad else ""))

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

    def _is_due(self, meter: _Meter, record: StepRecord, done: int, elapsed_secs: float) -> bool:
        broken = not (record.finite_loss and record.finite_grads and record.finite_params)
        due = elapsed_secs - meter.printed_secs >= _PLAIN_EVERY_SECS or done == meter.num_steps
        if not due and not (broken and not meter.said_non_finite):
            return False
        meter.printed_secs = elapsed_secs
        meter.said_non_finite = meter.said_non_finite or broken
        return True

    def _draw(self, name: str, done: int, total: int, line: str) -> None:
        now = time.monotonic()
        if now - self._drawn < _LIVE_EVERY_SECS and done < total:
            return
        self._drawn = now
        if self._live is None:
            self._live = _live(self._err)
            self._task = self._live.add_task(name, total=total, line=line)
            self._live.start()
        assert self._task is not None
        self._live.update(self._task, completed=done, total=total, description=name, line=line)
        self._live.refresh()

    def _pause(self) -> None:
        if self._live is not None:
            self._live.stop()
        self._live = self._task = None
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


def _live(console: Console) -> Progress:
    no_wrap = Column(no_wrap=True)
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=no_wrap),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        TextColumn("{task.fields[line]}", markup=False, table_column=Column(no_wrap=True)),
        console=console,
        transient=True,
        auto_refresh=False,
        expand=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _ending(outcome: Outcome | None) -> str:
    if outcome is None:
        return "ended without a result: see its log"
    if outcome.status == Outcome.COMPLETED:
        return f"completed at step {outcome.last_step}"
    if outcome.status == Outcome.STOPPED:
        return f"stopped at step {outcome.last_step}: non-finite, going on would measure nothing"
    what = "out of memory" if outcome.status == Outcome.OUT_OF_MEMORY else "exception"
    place = f" in {one_line(outcome.where)}" if outcome.where else ""
    step = f" at step {outcome.step}" if outcome.step is not None else ""
    message = one_line(f"{outcome.error_type}: {outcome.message}", 200)
    return f"ended by {what}{place}{step}: {message}"
