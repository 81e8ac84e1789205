"""Where the answer goes: results to stdout, warnings to stderr; a reader that goes away is fine.

A stream that is closed or full is not: without the answer there is nothing to rely on.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from pilot.errors import PilotError
from pilot.report.words import clean

MAX_COLUMNS = 110  # longer lines of text are hard to read


class OutputError(PilotError):
    """The answer cannot be written to stdout (exit code 1)."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the answer cannot be written to stdout: {why}")


class _Console(Console):
    """A console whose reader may go away (``| head``): the rest is not shown, nothing fails."""

    def on_broken_pipe(self) -> None:
        """Show nothing from here on."""
        self.quiet = True
        self.file = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (as long as it lives)


def make_console() -> Console:
    """A console on stdout, plain where it is no terminal; ``NO_COLOR`` and ``COLUMNS`` count.

    Raises:
        OutputError: stdout is closed.
    """
    _need_stdout()
    if isinstance(sys.stdout, io.TextIOWrapper):  # an old locale: a "?", never a crash
        sys.stdout.reconfigure(errors="replace")
    console = _Console(markup=False, highlight=False, emoji=False)
    if console.width > MAX_COLUMNS:
        console.width = MAX_COLUMNS
    return console


def show(console: Console, block: RenderableType) -> None:
    """Print one block; a ``Text`` that must not wrap (a command) is not broken.

    Off a terminal no line ends in spaces.

    Raises:
        OutputError: stdout cannot be written.
    """
    with _written():
        _print(console, block)


def _print(console: Console, block: RenderableType) -> None:
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
    """Write to stdout; nothing else ever goes there in JSON mode.

    Raises:
        OutputError: stdout is closed or cannot be written.
    """
    _need_stdout()
    with _written():
        sys.stdout.write(text)
        sys.stdout.flush()


def _need_stdout() -> None:
    if sys.stdout is None or sys.stdout.closed:
        raise OutputError("it is closed")


@contextlib.contextmanager
def _written() -> Iterator[None]:
    """A reader that goes away is silent; anything else that stops the writing is an error."""
    try:
        yield
    except BrokenPipeError:
        _give_up()
    except (OSError, ValueError) as error:
        _give_up()
        raise OutputError(getattr(error, "strerror", None) or str(error)) from error


def _give_up() -> None:
    """The interpreter flushes stdout once more at its end: give it somewhere to go."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(line: str) -> None:
    """One cleaned line on stderr; if that is closed or full, there is nobody left to tell.

    (``print`` to a closed stderr, which is None, would go to stdout.)
    """
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        print(clean(line), file=sys.stderr, flush=True)


def warn(lines: Iterable[str]) -> None:
    """Lines on stderr that start with the word ``warning``."""
    for line in lines:
        say(f"warning: {line}")


def complain(errors: Iterable[str]) -> None:
    """What could not be read, all at once, on stderr."""
    for error in errors:
        say(f"pilot: {error}")
