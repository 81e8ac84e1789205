"""The live lines of running arms: what each one shows, and how they are drawn over each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column


@dataclass
class Meter:
    """How far an arm is; the rate counts from the first record, without the start-up.

    ``name``, ``done`` and ``line`` are what its live line shows, so that it can be drawn again.
    """

    num_steps: int
    name: str
    done: int = 0
    line: str = "starting"
    first_done: int | None = None
    first_secs: float = 0.0
    printed_secs: float = -math.inf
    said_non_finite: bool = False

    def update(self, done: int, elapsed_secs: float) -> tuple[float | None, float | None]:
        """Steps per second and seconds left, or none for what is not known yet."""
        if self.first_done is None:
            self.first_done, self.first_secs = done, elapsed_secs
        self.done, self.num_steps = done, max(self.num_steps, done)
        steps, secs = done - self.first_done, elapsed_secs - self.first_secs
        if steps <= 0 or secs <= 0:
            return None, None
        return steps / secs, (self.num_steps - done) * secs / steps


@dataclass
class LiveLines:
    """The live lines while nothing else is printed, one task an arm.

    An arm that ends is printed about, which begins new live lines without it.
    """

    progress: Progress
    tasks: dict[str, TaskID] = field(default_factory=dict)

    def stop(self) -> None:
        """Remove the lines and give the cursor back."""
        self.progress.stop()

    def show(self, meters: Mapping[str, Meter]) -> None:
        """Draw one line for each meter, in the order in which the arms started."""
        for arm, meter in meters.items():
            if arm not in self.tasks:
                self.tasks[arm] = self.progress.add_task(meter.name, line=meter.line)
            self.progress.update(
                self.tasks[arm],
                completed=meter.done,
                total=meter.num_steps,
                description=meter.name,
                line=meter.line,
            )
        self.progress.refresh()


def live_lines(console: Console) -> LiveLines:
    """Live lines on ``console``, started and still empty."""
    lines = LiveLines(_progress(console))
    lines.progress.start()
    return lines


def _progress(console: Console) -> Progress:
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
