"""``diagnose``: read every path, answer, draw; the exit code says whether there is an alarm."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pilot.diagnose.study import Study, studies
from pilot.errors import ExitCode, PilotError, UsageError
from pilot.report.words import clean, human_bytes

_LARGE_BYTES = 30_000_000  # about two seconds
ALARM, UNREADABLE = ExitCode.NO_GO, ExitCode.USAGE


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of the word. ``plot`` is the picture's path, ``format_name`` a reader."""

    paths: tuple[str, ...]
    as_json: bool = False
    plot: Path | None = None
    format_name: str | None = None
    tracking_uri: str | None = None


def diagnose(options: Options) -> int:
    """Answer for all paths; returns 3 for any alarm, else 2 if anything failed, else 0.

    An alarm wins over a path that cannot be read: whoever asks about several runs must hear of the
    one that failed. A picture that cannot be written is said before the work and counts as 2.

    Raises:
        UsageError: no such format.
        OutputError: the answer cannot be written to stdout (see ``guarded``).
    """
    from pilot.diagnose.show import warn
    from pilot.diagnose.target import complaint

    _check_format(options.format_name)
    plot, why = options.plot, complaint(options.plot) if options.plot is not None else ""
    if why:
        plot = None
        warn([why])
    found = list(
        studies(
            options.paths,
            format_name=options.format_name,
            tracking_uri=options.tracking_uri,
            announce=_announce,
        )
    )
    _answer(options, found, has_plot=plot is not None)
    failed = _draw(plot, found) if plot else bool(why)
    return exit_code(found, failed=failed)


def guarded(options: Options) -> int:
    """``diagnose`` with its failures as a line on stderr, even where stderr is closed or full.

    Returns 1, whatever was found, if the answer could not be written to stdout.
    """
    import numpy as np

    from pilot.diagnose.show import complain

    try:
        # A log may hold 1e308: a mean of such values is inf, which is no news for stderr.
        with np.errstate(all="ignore"):
            return diagnose(options)
    except PilotError as error:
        complain([str(error)])
        return int(error.exit_code)


def exit_code(found: Sequence[Study], *, failed: bool = False) -> int:
    """3 for any alarm, else 2 if a path was not readable (or ``failed``), else 0."""
    if any(study.diagnosis.alarm for study in found):
        return int(ALARM)
    unreadable = any(study.trace is None for study in found)
    return int(UNREADABLE if unreadable or failed else ExitCode.GO)


def _announce(path: str) -> None:
    """On a terminal, say that a large file is being read: it takes seconds."""
    with contextlib.suppress(OSError, ValueError):
        num_bytes = Path(path).stat().st_size
        if num_bytes >= _LARGE_BYTES and sys.stderr is not None and sys.stderr.isatty():
            from pilot.diagnose.show import say

            say(f"reading {path} ({human_bytes(num_bytes)})")


def _answer(options: Options, found: Sequence[Study], *, has_plot: bool) -> None:
    from pilot.diagnose import show

    errors = [study.error for study in found if study.trace is None]
    if options.as_json:
        from pilot.diagnose.contract import to_json

        show.write_json(to_json(found))
    else:
        from pilot.diagnose.answer import blocks, overview

        console = show.make_console()
        for block in overview(found, console.width) if len(found) > 1 else []:
            show.show(console, block)
        readable = [study for study in found if study.trace is not None]
        for index, study in enumerate(readable):
            if index:
                console.print()
            for block in blocks(study, columns=console.width, has_plot=has_plot):
                show.show(console, block)
    show.complain(errors)


def _draw(plot: Path, found: Sequence[Study]) -> bool:
    """Draw each run that could be read; whether any picture could not be written."""
    from pilot.diagnose.plot import draw
    from pilot.diagnose.show import say, warn
    from pilot.diagnose.target import replaced

    failed = False
    drawable = [study for study in found if study.trace is not None]
    for study, path in zip(drawable, plot_paths(plot, len(drawable)), strict=True):
        try:
            with replaced(path) as file:
                draw(study, file)
            say(f"plot: {path} ({study.source})")
        except OSError as error:
            warn([f"{path}: the plot could not be written: {error.strerror or error}"])
            failed = True
    return failed


def plot_paths(plot: Path, num: int) -> list[Path]:
    """``out.png`` for the first run, ``out.2.png`` for the second, and so on."""
    more = [plot.with_name(f"{plot.stem}.{index}{plot.suffix}") for index in range(2, num + 1)]
    return [plot, *more][:num]


def _check_format(name: str | None) -> None:
    if name is None:
        return
    from pilot.mistakes import nearest
    from pilot.readers.registry import FORMATS

    if name not in FORMATS:
        near = nearest(name, FORMATS)
        hint = f"did you mean {near!r}?" if near else "leave --format out: it is recognised"
        rule = f"formats are {', '.join(FORMATS)}"
        raise UsageError(
            f"--format {clean(name)}: no such format\n    rule:   {rule}\n    remedy: {hint}"
        )
