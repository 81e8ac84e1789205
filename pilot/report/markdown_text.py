"""Markdown that shows exactly the characters it is given: escaping, lists and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from pilot.report.words import one_line

_SPECIAL = re.compile(r"([\\`*\[\]|~$!#])")
_EDGE_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_ENTITY = re.compile(r"&(?=#|\w)")
_BLOCK_START = re.compile(r"^(\s*)([-+>=]|\d+[.)](?=\s|$))")


def escape(text: object) -> str:
    """``text`` on one line, as inline Markdown that shows exactly its characters.

    Control and escape characters are dropped (``one_line``). An underscore inside a word has no
    meaning in Markdown and stays as it is. A bare address does not become a link. Where the text
    begins a line or a list item, ``escape_block`` is needed.
    """
    line = _ENTITY.sub("&amp;", one_line(text)).replace("<", "&lt;").replace(">", "&gt;")
    line = _EDGE_UNDERSCORE.sub(r"\\_", _SPECIAL.sub(r"\\\1", line))
    line = re.sub(r"(?i)\b(https?|ftp|mailto)(:)", r"\1&#58;", line)
    line = re.sub(r"(?i)\bwww\.", "www&#46;", line)
    return line.replace("@", "&#64;")


def escape_block(text: object) -> str:
    """``escape`` for text that begins a line: it starts no list, quote or heading either."""
    return _BLOCK_START.sub(_escape_start, escape(text))


def _escape_start(match: re.Match[str]) -> str:
    space, mark = match[1], match[2]
    return f"{space}\\{mark}" if len(mark) == 1 else f"{space}{mark[:-1]}\\{mark[-1]}"


def bullets(items: Sequence[object]) -> Iterator[str]:
    """One list item each, escaped."""
    return (f"- {escape_block(item)}" for item in items)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table; cells are escaped, an empty table is no line at all."""
    body = ["| " + " | ".join(escape(cell) for cell in row) + " |" for row in rows]
    if not body:
        return []
    return ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head), *body]
