"""Tables and label-text pairs for a terminal of 80 columns, without lines and without markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text


class Col(NamedTuple):
    """One column: its head, its side, and whether its text may be broken into several lines."""

    name: str
    justify: JustifyMethod = "left"
    may_wrap: bool = False


def table(*columns: Col) -> Table:
    """A table without lines: it reads the same in a log file and on any terminal."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        made.add_column(
            column.name, justify=column.justify, no_wrap=not column.may_wrap, overflow="fold"
        )
    return made


def pairs(rows: Sequence[tuple[str, str]], style: str = "") -> Table:
    """Label and text with a hanging indent; a repeated label is written once."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    last = ""
    for label, text in rows:
        shown = "" if label == last else label
        made.add_row(Text(shown if style else f"  {shown}", style=style), Text(text))
        last = label
    return made
