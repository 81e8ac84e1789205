"""The note on the run's page: the first two lines carry everything, for only five are shown.

Then the gates and arms as a fenced block (aligned; the page draws Markdown tables without borders)
and the figure. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pilot.report.layout import gate_sentence, next_line, status_word
from pilot.report.words import one_line
from pilot.tracking.hide import hide_message

MAX_NOTE_CHARS = 7900  # a store cuts at 8000, silently
_MAX_LINE_CHARS = 150


def note(verdict: Mapping[str, Any], run_id: str, figures: Sequence[str], root: Path) -> str:
    """The note of run ``run_id``; ``figures`` are names of artifacts that are shown in line."""
    head = (
        f"**{verdict['verdict']}** \u2014 {_escaped(verdict.get('why'))}  \n"
        f"**Next:** {_escaped(next_line(verdict, root))}\n\n"
    )
    pictures = "".join(
        f"\n![{name.rsplit('/', 1)[-1]}](get-artifact?path={name}&run_uuid={run_id})\n"
        for name in figures
    )
    lines = [*_gate_lines(verdict), *_other_lines(verdict)]
    room = MAX_NOTE_CHARS - len(head) - len(pictures) - 80
    return f"{head}```\n{_cut(lines, room)}\n```\n{pictures}"


def _gate_lines(verdict: Mapping[str, Any]) -> list[str]:
    rows = [("gate", "status", "evidence")]
    for gate in verdict.get("gates") or ():
        word = status_word(gate.get("status"))
        rows.append((str(gate.get("name")), word, gate_sentence(gate)))
    cells = [[_fenced(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(2)]
    return [
        "  ".join([*(row[i].ljust(widths[i]) for i in range(2)), row[2]])[:_MAX_LINE_CHARS].rstrip()
        for row in cells
    ]


def _other_lines(verdict: Mapping[str, Any]) -> list[str]:
    arms = [f"arm           {_fenced(arm.get('sentence'))}" for arm in verdict.get("arms") or ()]
    missing = [f"not measured  {_fenced(item)}" for item in verdict.get("not_measured") or ()]
    warnings = [f"warning       {_fenced(item)}" for item in verdict.get("warnings") or ()]
    lines = [line[:_MAX_LINE_CHARS] for line in (*arms, *warnings, *missing)]
    return ["", *lines] if lines else []


def _cut(lines: Sequence[str], room: int) -> str:
    kept: list[str] = []
    for index, line in enumerate(lines):
        if sum(map(len, kept)) + len(kept) + len(line) > room:
            return "\n".join([*kept, f"... {len(lines) - index} more lines in report.md"])
        kept.append(line)
    return "\n".join(kept)


def _escaped(text: object) -> str:
    """Text for a line of Markdown: markup characters lose their meaning."""
    safe = re.sub(r"([\\`*_\[\]|~#!$])", r"\\\1", hide_message(one_line(text or "", 1200)))
    return safe.replace("<", "&lt;").replace(">", "&gt;")


def _fenced(text: object) -> str:
    """Text for a fenced block: it cannot close the fence."""
    return hide_message(one_line(text or "")).replace("```", "'''")
