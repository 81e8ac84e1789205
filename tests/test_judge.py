"""The whole judge on whole folders: verdicts, files, repetition, other gates."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from pilot.errors import ExitCode
from pilot.judge import Judgement, judge
from pilot.records import Outcome
from pilot.view import PilotView
from tests.factories import (
    GATE_DEFAULTS,
    LOWER,
    build_view,
    make_gates,
    with_arm,
    with_baseline,
    without_arm,
)

FILES = ("findings.jsonl", "result.json", "verdict.json", "report.md")


def judged(view: PilotView, **gates: Any) -> Judgement:
    return judge(view, make_gates(**gates))


def nan_from(step: int) -> dict[str, Any]:
    def edit(record: Any) -> Any:
        return dataclasses.replace(record, loss=math.nan) if record.step >= step else record

    return {"edit": edit, "last_step": step + 1}


def test_a_healthy_pilot_is_go() -> None:
    result = judged(build_view())
    assert (result.word, result.exit_code) == ("GO", ExitCode.GO)
    verdict = result.verdict
    assert verdict["exit_code"] == 0 and verdict["cause"] is None and verdict["remedy"] is None
    assert verdict["why"].startswith("10 gates passed; held_out 3 before step 1, 2 after the cool")
    assert "gains 1.11 x what lr x1/3 gains" in verdict["why"]
    assert verdict["why"].endswith("not measured: memory, invariance, resume")
    assert "python -m pilot verify DIR +recipe=synthetic && " in verdict["next"]


def test_non_finite_is_no_go_with_a_proposed_remedy() -> None:
    verdict = judged(build_view(baseline=nan_from(20))).verdict
    assert (verdict["verdict"], verdict["exit_code"]) == ("NO-GO", 3)
    assert verdict["why"].startswith("finite: loss is not finite at step 20 (learning rate 0.003")
    assert verdict["remedy"]["status"] == "proposed"
    assert verdict["next"] == (
        "pilot the remedy (proposed): python -m pilot +recipe=synthetic optim.learning_rate=0.001"
    )


def test_quiet_and_ruined_is_no_go() -> None:
    verdict = judged(build_view(baseline={"final": 2.9}, lower={"final": 2.0})).verdict
    assert verdict["verdict"] == "NO-GO" and verdict["why"].startswith(
        "progress: learns too little"
    )


def test_several_failures_are_all_named() -> None:
    why = judged(build_view(baseline={"final": 3.5}, lower={"final": 2.0})).verdict["why"]
    assert why.startswith("validation: held_out 3 before step 1, 3.5 after the cool-down: +0.5")
    assert why.endswith("(failed too: progress)")


def test_an_exception_is_no_go_and_wins_over_coverage() -> None:
    outcome = Outcome(
        status="exception", last_step=6, where="collate", step=7, row_ids=(5,),
        error_type="KeyError", message="x",
    )  # fmt: skip
    verdict = judged(build_view(baseline={"last_step": 6, "outcome": outcome})).verdict
    assert verdict["verdict"] == "NO-GO" and verdict["cause"]["category"] == "implementation"
    assert verdict["next"].startswith("repair the recipe")


def test_a_lost_baseline_is_inconclusive() -> None:
    verdict = judged(build_view(baseline={"last_step": 20, "outcome": None})).verdict
    assert (verdict["verdict"], verdict["exit_code"]) == ("INCONCLUSIVE", 4)
    assert verdict["why"].startswith("outcome: the arm left no outcome")
    assert verdict["next"] == "python -m pilot resume DIR"


@pytest.mark.parametrize(
    "view",
    [
        without_arm(build_view(), "baseline"),
        without_arm(without_arm(build_view(), "baseline"), LOWER),
        with_baseline(build_view(), steps=(), cooldown=(), validations=()),
        with_baseline(build_view(), outcome=None),
        without_arm(build_view(), LOWER),
        with_arm(build_view(), LOWER, outcome=None),
    ],
)
def test_never_go_by_silence(view: PilotView) -> None:
    assert judged(view).word == "INCONCLUSIVE"
    optional = {
        name: {"need": "optional"} for name in GATE_DEFAULTS if name not in ("strict", "waive")
    }
    assert judged(view, **optional).word == "INCONCLUSIVE"


def test_a_waived_non_finite_stop_is_still_not_go() -> None:
    view = build_view(baseline=nan_from(20))
    result = judged(view, waive={"finite": "known"})
    assert result.word == "INCONCLUSIVE"
    assert result.verdict["waived"] == {"finite": "known"}


def test_the_arm_that_diverges_does_not_turn_go_into_no_go() -> None:
    result = judged(build_view(lower=nan_from(20)))
    assert result.word == "INCONCLUSIVE"  # the reference is missing, nothing failed
    row = result.verdict["arms"][1]
    assert row["words"] == "diverged" and row["status"] == "stopped"


def test_strict_counts_warnings_of_checks_without_a_gate() -> None:
    survey = build_view().survey
    audit = {**survey["order_audit"], "blocked": True}
    view = build_view(survey={"order_audit": audit})
    assert judged(view).word == "GO" and len(judged(view).verdict["warnings"]) == 1
    strict = judged(view, strict=True)
    assert strict.word == "INCONCLUSIVE"
    assert strict.verdict["why"].startswith("gates.strict: order: sources come in blocks")
    assert strict.verdict["next"] == "look at the warnings"


def test_a_skipped_required_check_is_inconclusive_and_listed() -> None:
    view = build_view(config={"checks__skip": ["finite", "no_such"]})
    verdict = judged(view).verdict
    assert verdict["verdict"] == "INCONCLUSIVE"
    assert "required gate finite was not measured: skipped by checks.skip" in verdict["why"]
    assert "gate finite (required): skipped by checks.skip" in verdict["not_measured"]
    assert "checks.skip names no check: no_such" in verdict["not_measured"]
    assert verdict["next"].startswith("measure finite, or judge with gates.waive.finite=REASON")


def test_what_was_not_measured_is_listed_once() -> None:
    view = build_view()
    assert judged(view).verdict["not_measured"] == [
        "gate memory (optional): no memory limit is known for this device",
        *view.plan.not_measured,
    ]
    bare = with_baseline(view, evidence=())
    missing = judged(bare).verdict["not_measured"]
    assert missing[1] == "gate memory (optional): no memory limit is known for this device"
    assert missing[2] == "check determinism: no evidence: measured before step 1 of the baseline"
    plan = dataclasses.replace(view.plan, not_measured=())
    silent = judged(dataclasses.replace(view, plan=plan)).verdict["not_measured"]
    assert silent[1:] == [
        f"gate {name} (optional): this version has no check for it"
        for name in ("invariance", "resume")
    ]


def test_a_waived_warning_is_no_warning() -> None:
    view = build_view(baseline={"memory_limit_bytes": 1000})
    tight = {"need": "optional", "min_headroom_frac": 0.6}
    assert len(judged(view, memory=tight).verdict["warnings"]) == 1
    assert judged(view, memory=tight, waive={"memory": "known"}).verdict["warnings"] == []


def test_checks_say_why_they_did_not_measure() -> None:
    checks = {c["name"]: c for c in judged(build_view()).result["checks"]}
    assert checks["memory"]["sentence"] == "no memory limit is known for this device"
    assert checks["finite"]["sentence"].startswith("loss, gradient and weights are finite")
    assert checks["finite"]["gate"] == "finite" and checks["order"]["gate"] is None


def test_the_verdict_has_its_documented_keys() -> None:
    verdict = judged(build_view()).verdict
    assert set(verdict) == {
        "schema_version", "verdict", "exit_code", "why", "next", "cause", "remedy",
        "not_measured", "warnings", "gates", "arms", "margin", "noise", "coverage", "cost",
        "waived", "plan", "fingerprint",
    }  # fmt: skip
    assert verdict["schema_version"] == 1
    assert verdict["fingerprint"] == {"recipe": "0123", "data": "4567", "world_size": 1}
    assert verdict["plan"]["pilot_steps"] == 48
    assert set(judged(build_view()).result) == {
        "schema_version", "checks", "gates", "arms", "margin", "noise", "coverage", "cost",
        "arm_gates", "validations",
    }  # fmt: skip


def test_result_holds_every_validation_and_the_arms_gates() -> None:
    result = judged(build_view()).result
    assert len(result["validations"]) == 2 * 2 * 4
    first, last = result["validations"][0], result["validations"][6]
    assert first["difference"] is None and first["at"] == "before"
    assert last["at"] == "cooldown_end" and last["difference"]["value"] == pytest.approx(-1.0)
    assert result["arm_gates"][LOWER]["progress"] == "undetermined"
    assert result["arm_gates"][LOWER]["finite"] == "pass"
    assert [c["name"] for c in result["checks"] if not c["measured"]] == ["memory"]


def test_an_objective_without_a_measure_is_inconclusive_unless_its_gates_are_optional() -> None:
    view = build_view(survey={"objective": "rl"})
    assert judge(view, make_gates()).word == "INCONCLUSIVE"
    need = {"need": "optional"}
    assert judge(view, make_gates(validation=need, progress=need)).word == "GO"
    reason = {"validation": "judged by reward", "progress": "judged by reward"}
    assert judge(view, make_gates(waive=reason)).word == "GO"
