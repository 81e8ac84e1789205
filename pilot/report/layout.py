"""What the terminal shows of a plan and a verdict, as blocks that fit into 80 columns.

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
from pilot.plan import Plan
from pilot.report.words import human_bytes, human_secs, one_line

VERDICT_STYLES = {"GO": "bold green", "NO-GO": "bold red", "INCONCLUSIVE": "bold yellow"}
# How a gate's status is written; failures stand out without any colour.
STATUS_WORDS = {"fail": "FAIL", "not_measured": "not measured"}
_STATUS_STYLES = {"pass": "green", "warn": "yellow", "FAIL": "bold red"}


def plan_blocks(plan: Plan, survey: Mapping[str, Any]) -> list[RenderableType]:
    """The plan: segments, validations, checkpoints, data, time, and what stays unmeasured."""
    length = "the whole run" if plan.whole_run else f"{100 * plan.share_of_full_run:.3g} % of it"
    head = Text.assemble(
        ("plan", "bold"),
        f" for {one_line(plan.recipe)}: {plan.pilot_steps} steps of the full run's "
        f"{plan.schedule.schedule_steps - plan.start_step} ({length})",
    )
    notes = [("not measured", one_line(item)) for item in plan.not_measured]
    notes += [("warning", one_line(item)) for item in plan.warnings]
    rows = [
        ("validation", _validations(plan, survey)),
        ("checkpoints", _checkpoints(plan)),
        ("data", _data(plan, survey)),
        ("device", _device(survey)),
        ("time", _time(plan)),
        *notes,
    ]
    return [head, _segments(plan), _pairs(rows), Text("")]


def _segments(plan: Plan) -> Table:
    table = _table(
        ("  segment", "left"), ("steps", "right"), ("count", "right"), ("learning rate", "left")
    )
    for segment in plan.segments:
        rates = f"{_rate(segment.first_learning_rate)} to {_rate(segment.last_learning_rate)}"
        branch = " (a branch)" if segment.name == "cool-down" else ""
        borders = f"{segment.first_step}-{segment.last_step}"
        table.add_row(f"  {segment.name}", borders, str(segment.num_steps), rates + branch)
    return table


def _rate(value: float) -> str:
    return f"{value:.2e}" if value else "0"


def _validations(plan: Plan, survey: Mapping[str, Any]) -> str:
    places = ", ".join(f"{_place(at)} {step}" for at, step in plan.validations.items())
    sizes = [
        f"{one_line(name, 40)} {rows} rows" + (", decides" if index == 0 else "")
        for index, (name, rows) in enumerate((survey.get("validation_rows") or {}).items())
    ]
    return f"after step: {places}" + (f" ({'; '.join(sizes)})" if sizes else "")


def _checkpoints(plan: Plan) -> str:
    places = ", ".join(f"{_place(at)} {step}" for at, step in plan.checkpoints.items())
    if not places:
        return "none"
    size = plan.checkpoint_bytes
    if not size:
        return places
    return f"{places}; {human_bytes(size)} each, {human_bytes(size * len(plan.checkpoints))} an arm"


def _data(plan: Plan, survey: Mapping[str, Any]) -> str:
    rows = f"{plan.rows_per_step} rows a step, {plan.num_rows_needed} rows needed"
    have = survey.get("num_train_rows")
    text = rows if have is None else f"{rows} of {have}"
    names = [one_line(name, 30) for name in survey.get("source_names") or ()]
    if names:
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        text += f"; source{'s' if len(names) > 1 else ''}: {shown}"
    return text


def _device(survey: Mapping[str, Any]) -> str:
    parts = [one_line(survey.get("device") or "unknown")]
    if survey.get("num_parameters"):
        trained = survey.get("num_trainable_parameters", survey["num_parameters"])
        parts.append(f"{survey['num_parameters']:,} parameters, {trained:,} trainable")
    return "; ".join(parts)


def _time(plan: Plan) -> str:
    arms = f"the baseline and {plan.num_arms} arm{'s' if plan.num_arms != 1 else ''}"
    if plan.expected_secs is None:
        return f"unknown, for {arms}"
    return f"about {human_secs(plan.expected_secs)} for {arms}"


def _place(at: str) -> str:
    return one_line(at).replace("_", " ")


def verdict_blocks(verdict: Mapping[str, Any], root: Path) -> list[RenderableType]:
    """The verdict: why, the gates, the arms, what to do next, what it cost, where it lies."""
    word = str(verdict.get("verdict", "INCONCLUSIVE"))
    style = VERDICT_STYLES.get(word, "bold")
    blocks: list[RenderableType] = [
        Text(""),
        _pairs([(word, one_line(verdict.get("why", "")))], style=style),
        Text(""),
        _gates(verdict.get("gates") or ()),
    ]
    rows = [
        *_cause(verdict),
        *(("arm", one_line(arm.get("sentence", ""))) for arm in verdict.get("arms") or ()),
        *(("not measured", one_line(item)) for item in verdict.get("not_measured") or ()),
        *(("warning", one_line(item)) for item in verdict.get("warnings") or ()),
        *_cost(verdict),
    ]
    blocks += [Text(""), _pairs(rows)]
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
    table = _table(("  gate", "left"), ("status", "left"), ("evidence", "left"))
    for gate in gates:
        word = status_word(gate.get("status"))
        status = Text(word, style=_STATUS_STYLES.get(word, ""))
        sentence = Text(gate_sentence(gate))
        table.add_row(Text(f"  {one_line(gate.get('name'))}"), status, sentence)
    return table


def _cause(verdict: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = []
    cause, remedy = verdict.get("cause") or {}, verdict.get("remedy") or {}
    if cause:
        rows.append(("cause", one_line(f"{cause.get('category')}: {cause.get('sentence')}")))
    if remedy:
        rows.append(("remedy", one_line(f"{remedy.get('override')} ({remedy.get('status')})")))
    return rows


def _cost(verdict: Mapping[str, Any]) -> list[tuple[str, str]]:
    cost, plan = verdict.get("cost") or {}, verdict.get("plan") or {}
    if not cost:
        return []
    text = f"{cost.get('num_steps', 0)} steps in {human_secs(cost.get('secs'))}, all arms together"
    if "share_of_full_run" in plan:
        text += f"; the baseline is {100 * plan['share_of_full_run']:.3g} % of the full run"
    return [("cost", text)]


def next_line(verdict: Mapping[str, Any], root: Path) -> str:
    """What to do next, with the pilot's folder in the place of ``DIR``: ready to be copied."""
    text = one_line(verdict.get("next") or "")
    return re.sub(r"\bDIR\b", lambda _: shlex.quote(str(root)), text)


def _line(label: str, text: str, style: str) -> Text:
    return Text.assemble((f"{label:<8} ", style), text)


def _pairs(rows: Sequence[tuple[str, str]], style: str = "") -> Table:
    """Label and text with a hanging indent; a repeated label is written once."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    last = ""
    for label, text in rows:
        shown = "" if label == last else label
        table.add_row(Text(shown if style else f"  {shown}", style=style), Text(text))
        last = label
    return table


def _table(*columns: tuple[str, Any]) -> Table:
    """A table without lines: it reads the same in a log file and on any terminal."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name, justify in columns:
        last = name in ("evidence", "learning rate")
        table.add_column(name, justify=justify, no_wrap=not last, overflow="fold")
    return table
