"""What the terminal shows of a verdict, as blocks that fit into 80 columns.

Pure: nothing is printed here. Every word from data or exceptions goes through ``one_line`` and
stands in a ``Text``, which rich never reads as markup.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pilot.folder import PilotFolder, read_json
from pilot.report import arm_text
from pilot.report.blocks import Col, pairs, table
from pilot.report.words import human_secs, number, one_line, share_text

VERDICT_STYLES = {"GO": "bold green", "NO-GO": "bold red", "INCONCLUSIVE": "bold yellow"}
# How a gate's status is written; failures stand out without any colour.
STATUS_WORDS = {"fail": "FAIL", "not_measured": "not measured"}
_STATUS_STYLES = {"pass": "green", "warn": "yellow", "FAIL": "bold red"}


def verdict_blocks(verdict: Mapping[str, Any], root: Path) -> list[RenderableType]:
    """The verdict: why, the gates, the arms, what to do next, what it cost, where it lies."""
    word = str(verdict.get("verdict", "INCONCLUSIVE"))
    style = VERDICT_STYLES.get(word, "bold")
    blocks: list[RenderableType] = [
        Text(""),
        pairs([(word, one_line(verdict.get("why", "")))], style=style),
        Text(""),
        _gates(verdict.get("gates") or ()),
    ]
    if verdict.get("arms"):
        blocks += [Text(""), _arms(verdict)]
        if arm_text.has_footnote(verdict["arms"]):
            blocks += [Text(f"  {arm_text.FOOTNOTE}")]
    rows = [
        *_about_arms(verdict),
        *_cause(verdict),
        *(("not measured", one_line(item)) for item in verdict.get("not_measured") or ()),
        *(("warning", one_line(item)) for item in verdict.get("warnings") or ()),
        *_cost(verdict),
    ]
    blocks += [Text(""), pairs(rows)]
    blocks += [_line("next", next_line(verdict, root), style)]
    blocks += [_line("report", str(PilotFolder(root).report), "bold")]
    link = tracking_link(root)
    return blocks + ([_line("tracking", link, "bold")] if link else [])


def tracking_link(root: Path) -> str:
    """How to open the pilot's tracking run, or an empty string when there is none."""
    path = PilotFolder(root).tracking
    try:
        return one_line(read_json(path).get("link") or "") if path.is_file() else ""
    except (OSError, ValueError):
        return ""


def status_word(status: object) -> str:
    """A gate's status as people read it: ``pass``, ``warn``, ``FAIL``, ``not measured``."""
    return STATUS_WORDS.get(str(status), one_line(str(status).replace("_", " ")))


def gate_sentence(gate: Mapping[str, Any]) -> str:
    """A gate's evidence; with the reason of its waiver, and whether it is optional."""
    text = one_line(gate.get("sentence") or "")
    if gate.get("waived"):
        judged = status_word(gate.get("judged"))
        text = f"waived because {one_line(gate['waived'])!r}; judged {judged}: {text}"
    return f"{text} (optional)" if gate.get("need") == "optional" else text


def _gates(gates: Sequence[Mapping[str, Any]]) -> Table:
    made = table(Col("  gate"), Col("status"), Col("evidence", may_wrap=True))
    for gate in gates:
        word = status_word(gate.get("status"))
        status = Text(word, style=_STATUS_STYLES.get(word, ""))
        sentence = Text(gate_sentence(gate))
        made.add_row(Text(f"  {one_line(gate.get('name'))}"), status, sentence)
    return made


def _arms(verdict: Mapping[str, Any]) -> Table:
    """The arms in one line each, if their texts are short; words, never only colours."""
    level = arm_text.level_text(verdict["arms"])
    made = table(
        Col("  arm", may_wrap=True),
        Col("changed", may_wrap=True),
        Col("result", may_wrap=True),
        Col(f"difference, {level}" if level else "difference", may_wrap=True),
        Col("steps", "right"),
    )
    for cells in arm_text.arm_texts(verdict):
        made.add_row(Text(f"  {cells.title}"), *(Text(cell) for cell in cells[1:]))
    return made


def _about_arms(verdict: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the table has no room for: reasons, margin and noise."""
    arms = verdict.get("arms") or ()
    reasons = ((arm_text.title(arm), arm_text.reason(arm)) for arm in arms)
    rows = [("arm", f"{title}: {reason}") for title, reason in reasons if reason]
    for key in ("margin", "noise"):
        sentence = one_line((verdict.get(key) or {}).get("sentence") or "")
        rows += [(key, sentence)] if sentence else []
    return rows


def _cause(verdict: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = []
    cause, remedy = verdict.get("cause") or {}, verdict.get("remedy") or {}
    if cause:
        rows.append(("cause", one_line(f"{cause.get('category')}: {cause.get('sentence')}")))
    rows += [("no cure", one_line(line)) for line in cause.get("no_cures") or ()]
    if remedy:
        rows.append(("remedy", one_line(f"{remedy.get('override')} ({remedy.get('status')})")))
    return rows


def _cost(verdict: Mapping[str, Any]) -> list[tuple[str, str]]:
    cost, plan = verdict.get("cost") or {}, verdict.get("plan") or {}
    if not cost:
        return []
    text = f"{cost.get('num_steps', 0)} steps in {human_secs(cost.get('secs'))}, all arms together"
    if cost.get("ratio") is not None:
        text += f" = {number(cost['ratio'])} x the baseline's {cost.get('baseline_steps', '')}"
    if "share_of_full_run" in plan:
        share = share_text(
            plan["start_step"], plan["schedule_steps"], plan["share_of_full_run"], plan["whole_run"]
        )
        text += f"; the baseline is {share}"
    saved = [
        f"{one_line(item.get('arm'))} {item.get('num_steps')} ({one_line(item.get('why'), 60)})"
        for item in cost.get("saved") or ()
    ]
    total = sum(int(item.get("num_steps") or 0) for item in cost.get("saved") or ())
    more = [("saved", f"{total} steps: {', '.join(saved)}")] if saved else []
    return [("cost", text), *more]


def next_line(verdict: Mapping[str, Any], root: Path) -> str:
    """What to do next, with the pilot's folder in the place of ``DIR``: ready to be copied."""
    text = one_line(verdict.get("next") or "")
    return re.sub(r"\bDIR\b", lambda _: shlex.quote(str(root)), text)


def _line(label: str, text: str, style: str) -> Text:
    return Text.assemble((f"{label:<8} ", style), text)
