"""Names that a store accepts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pilot.report.words import one_line


def free_name(text: str, taken: Iterable[str]) -> str:
    """A name that a store accepts (letters, digits, ``_-./:``), unlike those that are taken."""
    name = re.sub(r"[^\w\-./: ]", "_", one_line(text))
    name = re.sub(r"\.{2,}|/{2,}|^[/.]+|[/.]+$", "_", name)[:200] or "_"
    number, free, used = 2, name, set(taken)
    while free in used:
        free, number = f"{name}_{number}", number + 1
    return free
