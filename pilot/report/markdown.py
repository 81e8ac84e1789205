"""``report.md``: the verdict for people. A projection of ``verdict.json`` and ``result.json``.

Every text may hold words that come from data or exceptions, so every text is escaped here and shown
as it is; nothing of it can become a heading, a link, a table border or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pilot.report.words import human_secs, one_line

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


def render(verdict: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """The whole report; the first two lines carry verdict, why and what to do next."""
    parts = [
        f"# {escape(verdict['verdict'])}: {escape(verdict['why'])}",
        f"**Next:** {escape(verdict['next'])}",
        "",
        *_cause(verdict),
        *_section("Gates", _gates(verdict["gates"])),
        *_section("Coverage", _coverage(verdict["coverage"])),
        *_section("Arms", _arms(verdict["arms"])),
        *_section("Validations", _validations(result["validations"])),
        *_section("Cost", _cost(verdict["cost"])),
        *_section("Warnings", _bullets(verdict["warnings"])),
        *_section("Not measured", _bullets(verdict["not_measured"])),
        *_section("What this verdict does not mean", _bullets(_limits(verdict["plan"]))),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    body = list(lines)
    return [f"## {title}", "", *(body or ["none"]), ""]


def _bullets(items: Sequence[object]) -> Iterator[str]:
    return (f"- {escape_block(item)}" for item in items)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table; cells are escaped, an empty table is no line at all."""
    body = ["| " + " | ".join(escape(cell) for cell in row) + " |" for row in rows]
    if not body:
        return []
    return ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head), *body]


def _cause(verdict: Mapping[str, Any]) -> Iterator[str]:
    cause, remedy = verdict["cause"], verdict["remedy"]
    if cause:
        yield f"**Cause:** {escape(cause['category'])}. {escape(cause['sentence'])}"
        yield ""
        facts = [f"known: {fact}" for fact in cause["known"]]
        yield from [*_bullets([*cause["evidence"], *facts]), ""]
    if remedy:
        yield f"**Remedy** ({escape(remedy['status'])}): {escape(remedy['override'])}"
        yield ""
        yield from [*_bullets([remedy["sentence"]]), ""]


def _gates(gates: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        (
            gate["name"],
            _status(gate),
            gate["need"],
            gate["sentence"],
            _joined(gate["limit"], gate["limit_source"]),
        )
        for gate in gates
    ]
    return _table(("gate", "status", "need", "evidence", "limit and its source"), rows)


def _status(gate: Mapping[str, Any]) -> str:
    status = str(gate["status"]).replace("_", " ")
    if gate["status"] == "fail":
        return "FAIL"
    if gate["waived"]:
        return f"waived ({gate['judged'].replace('_', ' ')}): {gate['waived']}"
    return status


def _joined(limit: str, source: str) -> str:
    return f"{limit} ({source})" if limit and source else limit or source


def _coverage(coverage: Mapping[str, Any]) -> list[str]:
    head = (
        f"Data: {escape(coverage['data'])}; {coverage['num_rows_drawn']} rows drawn, "
        f"{coverage['num_rows_seen']} of {coverage['num_rows']} seen."
    )
    segments = [
        (s["segment"], f"{s['first_step']} to {s['last_step']}", s["num_trained"], s["num_steps"])
        for s in coverage["segments"]
    ]
    sources = [
        (
            s["source"],
            s["num_rows"],
            _percent(s["planned_share"]),
            _percent(s["seen_share"]),
            s["num_rows_seen"],
        )
        for s in coverage["sources"]
    ]
    lengths = [
        (which, *("-" if v is None else v for v in coverage["lengths"][which].values()))
        for which in ("planned", "seen")
    ]
    return [
        head,
        "",
        *_table(("segment", "steps", "trained", "planned"), segments),
        "",
        *_table(("source", "rows", "planned share", "seen share", "rows seen"), sources),
        "",
        *_table(("length (tokens)", "p50", "p90", "p99", "max"), lengths),
    ]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g} %"


def _arms(arms: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        (
            arm["title"],
            f"{arm['variable']}={arm['value']}" if arm["variable"] else "the recipe unchanged",
            str(arm["status"]).replace("_", " "),
            arm["num_steps"],
            _number(arm["final_loss"]),
            _difference(arm["difference"]),
            arm["words"] or "-",
        )
        for arm in arms
    ]
    head = ("arm", "change", "ended", "steps", "final validation", "against baseline", "words")
    return _table(head, rows)


def _validations(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return _table(
        ("arm", "set", "place", "step", "loss", "against before step 1", "examples"),
        [
            (
                row["arm"],
                f"{row['set']} (decides)" if row["primary"] else row["set"],
                str(row["at"]).replace("_", " "),
                row["step"],
                _number(row["loss"]),
                _difference(row["difference"]),
                row["num_examples"],
            )
            for row in rows
        ],
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _difference(change: Mapping[str, Any] | None) -> str:
    if change is None:
        return "-"
    return f"{change['value']:+.4g} (SE {change['se']:.2g}, n {change['num_examples']})"


def _cost(cost: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            item["arm"],
            item["num_steps"],
            item["num_cooldown_steps"],
            human_secs(item["secs"]),
            ", ".join(f"{kind} {human_secs(s)}" for kind, s in item["secs_by_kind"].items()) or "-",
        )
        for item in cost["arms"]
    ]
    total = f"{cost['num_steps']} optimizer steps, {human_secs(cost['secs'])} of measured work."
    return [total, "", *_table(("arm", "steps", "cool-down", "time", "of which"), rows)]


def _limits(plan: Mapping[str, Any]) -> list[str]:
    share = f"{100 * plan['share_of_full_run']:.3g} %"
    rest = "the whole run" if plan["whole_run"] else f"{share} of the full run"
    return [
        f"It judges {plan['pilot_steps']} steps ({rest}) of one seed: what begins later, or with "
        "another seed, is not excluded.",
        "GO says that nothing measured speaks against starting; it says nothing about how good "
        "the trained model will be, or whether this learning rate is the best.",
        "Standard errors are over validation examples; the noise between seeds was not measured.",
        "It holds for exactly this recipe, code, data and these versions: pilot verify compares.",
    ]
