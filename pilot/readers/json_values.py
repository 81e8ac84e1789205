"""JSON that the standard decoder refuses: values nested too deep, integers with too many digits."""

from __future__ import annotations

import json
import re

_MAX_DEPTH = 32  # no quantity of a log is nested deeper (records are looked at four deep)
_MAX_DIGITS = 400  # more than any float has
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)


def _integer(text: str) -> float:
    """An integer; beyond what a float holds it is infinite, as a float of that size is."""
    return int(text) if len(text) <= _MAX_DIGITS else float(text)


_STRICT = json.JSONDecoder()
_LENIENT = json.JSONDecoder(parse_int=_integer)


def loads(text: str) -> object:
    """``json.loads``; a value nested deeper than 32 becomes null, a huge integer infinite.

    Raises:
        ValueError: no JSON.
    """
    value, end = decode(text, len(text) - len(text.lstrip()))
    if text[end:].strip():
        raise ValueError("there is something behind the JSON value")
    return value


def decode(text: str, start: int = 0) -> tuple[object, int]:
    """The JSON value that begins at ``start``, and where it ends.

    Raises:
        ValueError: no JSON, or it is not complete.
    """
    try:
        return _STRICT.raw_decode(text, start)
    except json.JSONDecodeError:
        raise
    except ValueError:  # too many digits for an int
        return _LENIENT.raw_decode(text, start)
    except RecursionError:
        whole, end = shallow(text, start)
        return _LENIENT.raw_decode(whole)[0], end


def shallow(text: str, start: int) -> tuple[str, int]:
    """The object or list at ``start`` with null for what is nested too deep, and its end.

    Raises:
        ValueError: it is not complete.
    """
    depth, parts, kept_from = 0, [], start
    for match in _TOKEN.finditer(text, start):
        char = match[0]
        if char in "{[":
            depth += 1
            if depth == _MAX_DEPTH + 1:
                parts.append(text[kept_from : match.start()])
        elif char in "}]":
            if depth == _MAX_DEPTH + 1:
                parts.append("null")
                kept_from = match.end()
            depth -= 1
            if depth == 0:
                parts.append(text[kept_from : match.end()])
                return "".join(parts), match.end()
    raise ValueError("a value is not complete")
