"""The rules from gates to GO, NO-GO and INCONCLUSIVE."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.checks.registry import GATE_NAMES, CheckResult, all_checks, not_measured
from pilot.records import Finding
from pilot.verdict import GateResult, blocking, decide, gate_results
from tests.factories import make_gates

JUDGED = [info.gate for info in all_checks() if info.gate is not None]


def found(*severities: str) -> CheckResult:
    findings = tuple(
        Finding(check="x", severity=s, category="data", sentence=f"{s} it is") for s in severities
    )
    return CheckResult(measured=True, findings=findings, sentence="evidence", limit="a limit")


def results(**changes: CheckResult) -> dict[str, CheckResult]:
    """Every check passes, but those given."""
    return {**{info.name: found() for info in all_checks()}, **changes}


def verdict(gates: dict[str, Any] | None = None, num_steps: int = 48, **changes: Any) -> str:
    typed = make_gates(**(gates or {}))
    num_warnings = changes.pop("num_warnings", 0)
    judged = gate_results(typed, results(**changes))
    return decide(typed, judged, num_steps=num_steps, num_warnings=num_warnings)


def gate(name: str, gates: dict[str, Any] | None = None, **changes: Any) -> GateResult:
    judged = gate_results(make_gates(**(gates or {})), results(**changes))
    return next(g for g in judged if g.name == name)


def test_all_pass_is_go() -> None:
    assert verdict() == "GO"


@pytest.mark.parametrize("name", JUDGED)
def test_one_failed_gate_is_no_go(name: str) -> None:
    assert verdict(**{name: found("fail")}) == "NO-GO"


@pytest.mark.parametrize("name", JUDGED)
def test_one_undetermined_gate_is_inconclusive(name: str) -> None:
    assert verdict(**{name: found("undetermined")}) == "INCONCLUSIVE"


@pytest.mark.parametrize("name", JUDGED)
def test_a_missing_gate_matters_when_it_is_required(name: str) -> None:
    gone = {name: not_measured("why")}
    assert verdict({name: {"need": "required"}}, **gone) == "INCONCLUSIVE"
    assert verdict({name: {"need": "optional"}}, **gone) == "GO"


@pytest.mark.parametrize("name", ["invariance", "resume"])
def test_a_gate_without_a_check_is_not_measured(name: str) -> None:
    assert gate(name).status == "not_measured"
    assert gate(name).sentence == "this version has no check for it"
    assert verdict({name: {"need": "required"}}) == "INCONCLUSIVE"


def test_no_go_wins_over_inconclusive() -> None:
    assert verdict(coverage=found("undetermined"), finite=found("fail")) == "NO-GO"


def test_warnings_matter_only_when_strict() -> None:
    warned = {"early_damage": found("warn")}
    assert verdict(**warned) == "GO"
    assert verdict({"strict": True}, **warned) == "INCONCLUSIVE"
    assert verdict({"strict": True}) == "GO"
    assert verdict({"strict": True}, num_warnings=1) == "INCONCLUSIVE"
    assert verdict(num_warnings=1) == "GO"
    assert verdict({"strict": True}, early_damage=found("note")) == "GO"


def test_a_waiver_takes_a_gate_out_and_shows_its_reason() -> None:
    waive = {"waive": {"finite": "known fault of the card"}}
    for state in (found("fail"), found("undetermined"), not_measured("gone")):
        assert verdict(waive, finite=state) == "GO"
        assert verdict({}, finite=state) != "GO"
    waived = gate("finite", waive, finite=found("fail"))
    assert (waived.status, waived.judged) == ("waived", "fail")
    assert waived.waived == "known fault of the card"
    assert verdict(waive, finite=found("fail"), outcome=found("fail")) == "NO-GO"
    assert verdict({**waive, "strict": True}, finite=found("warn")) == "GO"


def test_an_empty_reason_is_still_a_waiver() -> None:
    assert gate("finite", {"waive": {"finite": ""}}, finite=found("fail")).status == "waived"


def test_never_go_by_silence() -> None:
    assert verdict(num_steps=0) == "INCONCLUSIVE"
    gates = make_gates(**{name: {"need": "optional"} for name in GATE_NAMES})
    assert decide(gates, (), num_steps=48) == "INCONCLUSIVE"
    assert decide(make_gates(), (), num_steps=48) == "INCONCLUSIVE"
    silent = gate_results(gates, {i.name: not_measured("gone") for i in all_checks()})
    assert decide(gates, silent, num_steps=48) == "INCONCLUSIVE"
    all_waived = make_gates(waive={name: "no time" for name in GATE_NAMES})
    judged = gate_results(all_waived, results())
    assert decide(all_waived, judged, num_steps=48) == "INCONCLUSIVE"


def test_a_required_gate_that_is_absent_from_the_results_counts() -> None:
    gates = make_gates()
    judged = tuple(g for g in gate_results(gates, results()) if g.name != "progress")
    assert decide(gates, judged, num_steps=48) == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("severities", "status"),
    [
        ((), "pass"),
        (("note",), "pass"),
        (("note", "warn"), "warn"),
        (("warn", "undetermined"), "undetermined"),
        (("undetermined", "fail", "warn"), "fail"),
    ],
)
def test_the_worst_finding_decides(severities: tuple[str, ...], status: str) -> None:
    assert gate("labels", labels=found(*severities)).status == status


def test_gates_come_in_their_order_with_evidence_and_source() -> None:
    judged = gate_results(make_gates(), results(memory=not_measured("no limit is known")))
    assert tuple(g.name for g in judged) == GATE_NAMES
    by_name = {g.name: g for g in judged}
    assert by_name["finite"].sentence == "evidence" and by_name["finite"].limit == "a limit"
    assert "GradScaler" in by_name["finite"].limit_source
    assert by_name["memory"].sentence == "no limit is known"
    assert (by_name["finite"].need, by_name["memory"].need) == ("required", "optional")
    assert by_name["finite"].checks == ("finite",)


def test_blocking_puts_what_explains_most_first() -> None:
    gates = make_gates()
    judged = gate_results(
        gates,
        results(
            finite=found("fail"),
            labels=found("fail"),
            validation=found("fail"),
            coverage=found("undetermined"),
            movement=found("warn"),
        ),  # fmt: skip
    )
    assert [g.name for g in blocking(gates, judged)] == ["labels", "finite", "validation"]


def stepped(step: int | None) -> CheckResult:
    finding = Finding(check="x", severity="fail", category="data", sentence="it is", step=step)
    return CheckResult(measured=True, findings=(finding,), sentence="evidence")


@pytest.mark.parametrize(
    ("spoilt", "raised", "first"),
    [(7, 8, "finite"), (8, 8, "outcome"), (9, 8, "outcome"), (None, 8, "outcome"), (7, None, "o")],
)
def test_what_failed_earlier_explains_the_later(
    spoilt: int | None, raised: int | None, first: str
) -> None:
    judged = gate_results(
        make_gates(),
        results(
            finite=stepped(spoilt),
            outcome=stepped(raised),
            movement=found("fail"),
            labels=found("fail"),
        ),  # fmt: skip
    )
    rest = ["finite", "outcome"] if first == "finite" else ["outcome", "finite"]
    names = [g.name for g in blocking(make_gates(), judged)]
    assert names == ["labels", *rest, "movement"]


def test_blocking_without_failures_lists_what_is_open() -> None:
    gates = make_gates()
    judged = gate_results(
        gates,
        results(
            progress=not_measured("x"),
            coverage=found("undetermined"),
            memory=not_measured("x"),
            movement=found("warn"),
        ),  # fmt: skip
    )
    assert [g.name for g in blocking(gates, judged)] == ["progress", "coverage"]


def test_blocking_of_warnings_only_when_strict() -> None:
    warned = results(movement=found("warn"), early_damage=found("warn"))
    strict = make_gates(strict=True)
    names = [g.name for g in blocking(strict, gate_results(strict, warned))]
    assert names == ["movement", "early_damage"]
    assert blocking(make_gates(), gate_results(make_gates(), warned)) == ()
    assert blocking(make_gates(), gate_results(make_gates(), results())) == ()
