"""``recipe.argv``: the command line of a script that reads one (argparse, ``HfArgumentParser``)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from pilot.errors import Mistake

KEY = "recipe.argv"


def argv_of(recipe: Mapping[str, Any]) -> tuple[str, ...]:
    """The words behind the script's name: a list, or one text as the shell would be given it.

    Raises:
        ValueError: a quote is not closed.
    """
    given = recipe.get("argv")
    if isinstance(given, str):
        return tuple(shlex.split(given))
    return tuple(str(word) for word in given or ())


def argv_mistakes(recipe: Mapping[str, Any]) -> list[Mistake]:
    """What is wrong with ``recipe.argv``, if anything is."""
    given, wrong = recipe.get("argv"), ""
    if isinstance(given, str):
        try:
            shlex.split(given)
        except ValueError as error:
            wrong = f"cannot be split into words: {error}"
    elif given is not None and not _is_words(given):
        wrong = "must be the words of a command line: a list, or one text"
    if not wrong:
        return []
    remedy = "recipe.argv='[--name, value]'"
    return [Mistake(key=KEY, value=repr(given), rule=wrong, remedy=remedy)]


def _is_words(given: object) -> bool:
    return isinstance(given, (list, tuple)) and all(
        isinstance(word, (str, int, float)) and not isinstance(word, bool) for word in given
    )
