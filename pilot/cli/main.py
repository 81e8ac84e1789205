"""The entry: help, version, a word, or a recipe; turns every failure into its exit code."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Sequence

from pilot.cli.app import INTERRUPTED
from pilot.errors import ExitCode, PilotError, UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    A ``PilotError`` is explained on standard error without a traceback. Anything else is a fault of
    pilot: traceback, exit code 1.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        return int(_dispatch(given))
    except PilotError as error:
        print(f"pilot: {error}", file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:
        print("pilot: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception:
        traceback.print_exc()
        print("pilot: this is a fault of pilot itself, not of your recipe", file=sys.stderr)
        return int(ExitCode.CRASH)


def _dispatch(given: list[str]) -> int:
    if any(word in ("-h", "--help", "help") for word in given[:1]) or "--help" in given[1:]:
        if given and given[0] in _words():
            return _run_word(given)
        from pilot.cli.help import help_text

        print(help_text())
        return ExitCode.GO
    if given[:1] == ["--version"]:
        from pilot import __version__

        print(f"pilot {__version__}")
        return ExitCode.GO
    if given and re.fullmatch(r"[A-Za-z][\w-]*", given[0]):
        return _run_word(given)
    from pilot.cli.app import run

    return run(given)


def _words() -> dict[str, object]:
    from pilot.cli.words import WORDS

    return dict(WORDS)


def _run_word(given: list[str]) -> int:
    from pilot.cli.words import WORDS

    word = given[0]
    if word not in WORDS:
        from pilot.mistakes import nearest

        public = [name for name, entry in WORDS.items() if not entry.internal]
        near = nearest(word, public)
        hint = f"did you mean {near!r}?" if near else "a recipe is given as +recipe=NAME"
        raise UsageError(
            f"{word}: no such word\n    rule:   words are {', '.join(public)}\n    remedy: {hint}"
        )
    return int(WORDS[word].run(given[1:]))
