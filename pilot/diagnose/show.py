"""Where the answer goes: results to stdout, warnings to stderr; a reader that goes away is fine."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.text import Text

from pilot.report.words import clean

MAX_COLUMNS = 110  # longer lines of text are hard to read


class _Console(Console):
    """A console whose reader may go away (``| head``): the rest is not shown, nothing fails."""

    def on_broken_pipe(self) -> None:
        """Show nothing from here on."""
        self.quiet = True
        self.file = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (as long as it lives)


def make_console() -> Console:
    """A console on stdout, plain where it is no terminal; ``NO_COLOR`` and ``COLUMNS`` count."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # an old locale: a "?", never a crash
        sys.stdout.reconfigure(errors="replace")
    console = _Console(markup=False, highlight=False, emoji=False)
    if console.width > MAX_COLUMNS:
        console.width = MAX_COLUMNS
    return console


def show(console: Console, block: RenderableType) -> None:
    """Print one block; a ``Text`` that must not wrap (a command) is not broken.

    Off a terminal no line ends in spaces.
    """
    if isinstance(block, Text) and block.no_wrap:
        console.print(block, soft_wrap=True)
        return
    if console.is_terminal:
        console.print(block)
        return
    with console.capture() as captured:
        console.print(block)
    lines = captured.get().rstrip("\n").split("\n")
    console.print(Text("\n".join(line.rstrip() for line in lines)), soft_wrap=True)


def write_json(text: str) -> None:
    """Write to stdout; nothing else ever goes there in JSON mode."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    # The interpreter flushes stdout once more at its end: give it somewhere to go.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def warn(lines: Iterable[str]) -> None:
    """Lines on stderr that start with the word ``warning``."""
    for line in lines:
        print(f"warning: {clean(line)}", file=sys.stderr)


def complain(errors: Iterable[str]) -> None:
    """What could not be read, all at once, on stderr."""
    for error in errors:
        print(f"pilot: {clean(error)}", file=sys.stderr)
