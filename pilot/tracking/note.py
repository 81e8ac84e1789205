"""The note on the parent's page: the first two lines carry everything, for only five are shown.

Then the gates and the arms as fenced, aligned tables (the page draws Markdown tables without
borders) and the figure. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pilot.report import arm_text
from pilot.report.layout import gate_sentence, next_line, status_word
from pilot.report.words import one_line
from pilot.tracking.hide import hide_message
from pilot.tracking.pages import arms_page, run_page

MAX_NOTE_CHARS = 7900  # a store cuts at 8000, silently
_MAX_LINE_CHARS = 106  # what a page of 1600 pixels shows without scrolling sideways
_MAX_HEAD_CHARS = 1200
_LOSS_COLUMNS = (2, 3)  # numbers: to the right


def note(
    verdict: Mapping[str, Any],
    root: Path,
    *,
    experiment_id: str,
    run_id: str,
    figures: Sequence[str],
) -> str:
    """The note of the parent run ``run_id``; ``figures`` are names of artifacts shown in line."""
    link = arms_page(experiment_id, run_id)
    head = (
        f"**{verdict['verdict']}** \u2014 {_escaped(verdict.get('why'))}  \n"
        f"**Next:** {_escaped(next_line(verdict, root))} \u00b7 [compare arms]({link})\n\n"
    )
    pictures = "".join(
        f"\n![{name.rsplit('/', 1)[-1]}](get-artifact?path={name}&run_uuid={run_id})\n"
        for name in figures
    )
    lines = [*_gate_lines(verdict), *_arm_lines(verdict), *_other_lines(verdict)]
    room = MAX_NOTE_CHARS - len(head) - len(pictures) - 80
    return f"{head}```\n{_cut(lines, room)}\n```\n{pictures}"


def child_note(sentence: str, pilot_name: str, experiment_id: str, parent_id: str) -> str:
    """The note of one arm: its sentence, and the way to the whole pilot."""
    return (
        f"{_escaped(sentence)}  \n"
        f"One arm of [{_escaped(pilot_name)}]({run_page(experiment_id, parent_id)}) \u00b7 "
        f"[compare arms]({arms_page(experiment_id, parent_id)})\n"
    )


def _gate_lines(verdict: Mapping[str, Any]) -> list[str]:
    rows = [("gate", "status", "evidence")]
    for gate in verdict.get("gates") or ():
        word = status_word(gate.get("status"))
        rows.append((str(gate.get("name")), word, gate_sentence(gate)))
    return _aligned(rows)


def _arm_lines(verdict: Mapping[str, Any]) -> list[str]:
    """Arm, what it changed, final loss, difference, result."""
    arms = verdict.get("arms") or ()
    if not arms:
        return []
    start = int((verdict.get("plan") or {}).get("start_step") or 0)
    rows = [("arm", "changed", "final loss", "difference", "result")]
    for arm in arms:
        loss = arm.get("final_loss")
        rows.append(
            (
                arm_text.title(arm),
                arm_text.changed(arm, short=True),
                f"{loss:#.4g}" if isinstance(loss, (int, float)) else "-",
                arm_text.difference(arm),
                _result(arm, start),
            )
        )
    return ["", *_aligned(rows, _LOSS_COLUMNS)]


def _result(arm: Mapping[str, Any], start_step: int) -> str:
    """``diverged at 31``, and why an arm is identical, lost or not run."""
    text, reason = arm_text.result(arm, start_step), arm_text.reason(arm)
    return f"{text} ({reason})" if reason else text


def _other_lines(verdict: Mapping[str, Any]) -> list[str]:
    missing = [f"not measured  {_fenced(item)}" for item in verdict.get("not_measured") or ()]
    warnings = [f"warning       {_fenced(item)}" for item in verdict.get("warnings") or ()]
    margin = (verdict.get("margin") or {}).get("sentence")
    noise = (verdict.get("noise") or {}).get("sentence")
    facts = [f"margin        {_fenced(margin)}"] if margin else []
    facts += [f"noise         {_fenced(noise)}"] if noise else []
    lines = [_shortened(line) for line in (*facts, *warnings, *missing)]
    return ["", *lines] if lines else []


def _aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Columns of equal width; the last one is cut where the page ends."""
    cells = [[_fenced(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths[-1] = 0
    return [
        _shortened(
            "  ".join(
                cell.rjust(width) if column in right else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
        )
        for row in cells
    ]


def _shortened(line: str) -> str:
    return line if len(line) <= _MAX_LINE_CHARS else line[: _MAX_LINE_CHARS - 3] + "..."


def _cut(lines: Sequence[str], room: int) -> str:
    kept: list[str] = []
    for index, line in enumerate(lines):
        if sum(map(len, kept)) + len(kept) + len(line) > room:
            return "\n".join([*kept, f"... {len(lines) - index} more lines in report.md"])
        kept.append(line)
    return "\n".join(kept)


def _escaped(text: object) -> str:
    """Text for a line of Markdown: markup characters lose their meaning."""
    plain = hide_message(one_line(text or "", _MAX_HEAD_CHARS))
    safe = re.sub(r"([\\`*_\[\]|~#!$])", r"\\\1", plain)
    return safe.replace("<", "&lt;").replace(">", "&gt;")


def _fenced(text: object) -> str:
    """Text for a fenced block: it cannot close the fence."""
    return hide_message(one_line(text or "")).replace("```", "'''")
