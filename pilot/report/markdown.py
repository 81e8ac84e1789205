"""``report.md``: the verdict for people. A projection of ``verdict.json`` and ``result.json``.

Every text may hold words that come from data or exceptions, so every text is escaped here and shown
as it is; nothing of it can become a heading, a link, a table border or HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pilot.report.markdown_arms import arms_section, cost_section, noise_limit, number_or_dash
from pilot.report.markdown_text import bullets, escape, table
from pilot.report.words import share_text


def render(verdict: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """The whole report; the first two lines carry verdict, why and what to do next."""
    parts = [
        f"# {escape(verdict['verdict'])}",
        "",
        escape(verdict["why"]),
        "",
        f"**Next:** {escape(verdict['next'])}",
        "",
        *_cause(verdict),
        *_section("Gates", _gates(verdict["gates"])),
        *_section("Coverage", _coverage(verdict["coverage"])),
        *_section("Arms", arms_section(verdict)),
        *_section("Validations", _validations(result["validations"], _first_step(verdict))),
        *_section("Cost", cost_section(verdict)),
        *_section("Warnings", bullets(verdict["warnings"])),
        *_section("Not measured", bullets(verdict["not_measured"])),
        *_section("What this verdict does not mean", bullets(_limits(verdict))),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    body = list(lines)
    return [f"## {title}", "", *(body or ["none"]), ""]


def _cause(verdict: Mapping[str, Any]) -> Iterator[str]:
    cause, remedy = verdict["cause"], verdict["remedy"]
    if cause:
        yield f"**Cause:** {escape(cause['category'])}. {escape(cause['sentence'])}"
        yield ""
        facts = [f"known: {fact}" for fact in cause["known"]]
        facts += [f"no cure: {line}" for line in cause.get("no_cures") or ()]
        yield from [*bullets([*cause["evidence"], *facts]), ""]
    if remedy:
        yield f"**Remedy** ({escape(remedy['status'])}): {escape(remedy['override'])}"
        yield ""
        yield from [*bullets([remedy["sentence"]]), ""]


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
    return table(("gate", "status", "need", "evidence", "limit and its source"), rows)


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
    head = f"Data: {escape(coverage['data'])}; {coverage['num_rows_drawn']} rows drawn"
    if coverage["num_rows"] is None:
        head += "; how many there are is not known."
    else:
        head += f", {coverage['num_rows_seen']} of {coverage['num_rows']} seen."
    segments = [
        (s["segment"], f"{s['first_step']} to {s['last_step']}", s["num_trained"], s["num_steps"])
        for s in coverage["segments"]
    ]
    sources = [
        (
            s["source"],
            "-" if s["num_rows"] is None else s["num_rows"],
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
        *table(("segment", "steps", "trained", "planned"), segments),
        "",
        *table(("source", "rows", "planned share", "seen share", "rows seen"), sources),
        "",
        *table(("length (tokens)", "p50", "p90", "p99", "max"), lengths),
    ]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g} %"


def _first_step(verdict: Mapping[str, Any]) -> int:
    return int((verdict.get("plan") or {}).get("start_step") or 0) + 1


def _validations(rows: Sequence[Mapping[str, Any]], first_step: int) -> list[str]:
    return table(
        ("arm", "set", "place", "step", "loss", f"against before step {first_step}", "examples"),
        [
            (
                row["arm"],
                f"{row['set']} (decides)" if row["primary"] else row["set"],
                str(row["at"]).replace("_", " "),
                row["step"],
                number_or_dash(row["loss"]),
                _difference(row["difference"]),
                row["num_examples"],
            )
            for row in rows
        ],
    )


def _difference(change: Mapping[str, Any] | None) -> str:
    if change is None:
        return "-"
    return f"{change['value']:+.4g} (SE {change['se']:.2g}, n {change['num_examples']})"


def _limits(verdict: Mapping[str, Any]) -> list[str]:
    plan = verdict["plan"]
    rest = share_text(
        plan["start_step"], plan["schedule_steps"], plan["share_of_full_run"], plan["whole_run"]
    )
    return [
        f"It judges {plan['pilot_steps']} steps of one seed, {rest}: what begins later, or with "
        "another seed, is not excluded.",
        "GO says that nothing measured speaks against starting; it says nothing about how good "
        "the trained model will be, or whether this learning rate is the best.",
        noise_limit(verdict),
        "It holds for exactly this recipe, code, data and these versions: pilot verify compares.",
    ]
