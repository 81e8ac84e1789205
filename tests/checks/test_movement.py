from __future__ import annotations

import math
from typing import Any

import pytest

from pilot.checks.movement import check
from pilot.checks.registry import CheckResult
from tests.factories import build_view, make_gates, make_movement, with_baseline


def tensor(name: str, num_elements: int, **extra: Any) -> dict[str, Any]:
    return {"name": name, "num_elements": num_elements, **extra}


def still(name: str, num_elements: int, grad: float = 0.1, ratio: float | None = 0.4) -> Any:
    return tensor(
        name, num_elements, max_grad_norm=grad, dtype="bfloat16", update_over_half_ulp=ratio
    )


def run(max_still_frac: float = 0.01, **values: Any) -> CheckResult:
    view = with_baseline(build_view(), evidence=(make_movement(**values),))
    assert view.baseline is not None
    return check(view, make_gates(movement={"max_still_frac": max_still_frac}), view.baseline)


def severities(result: CheckResult) -> list[tuple[str, str]]:
    return [(f.severity, f.category) for f in result.findings]


def test_all_moved_passes() -> None:
    result = run()
    assert result.measured and result.findings == ()
    assert result.sentence == "all 20 trainable tensors that got a gradient moved"


def test_exactly_one_percent_warns_and_more_fails() -> None:
    assert severities(run(still=[still("a", 4_000), still("b", 6_000)])) == [("warn", "precision")]
    result = run(still=[still("a", 4_000), still("b", 6_001)])
    assert severities(result) == [("fail", "precision")]
    assert result.findings[0].obj == "b, a" and "1 % of the parameters" in result.sentence
    assert severities(run(0.02, still=[still("b", 10_001)])) == [("warn", "precision")]
    assert severities(run(still=[still("b", 10_001, ratio=1.0)])) == [("fail", "precision")]


def test_an_update_above_half_an_ulp_fails_however_small_the_tensor() -> None:
    assert severities(run(still=[still("a", 10, ratio=1.0)])) == [("warn", "precision")]
    result = run(still=[still("a", 10, ratio=1.01), still("b", 10)])
    assert severities(result) == [("fail", "implementation")]
    assert result.findings[0].obj == "a"


def test_standing_still_is_an_implementation_fault_when_rounding_does_not_explain_it() -> None:
    for ratio in (None, math.nan, math.inf):
        result = run(still=[still("a", 20_000), still("b", 20_000, ratio=ratio)])
        assert ("fail", "implementation") in severities(result)
        assert ("fail", "precision") not in severities(result)


def test_a_gradient_of_zero_is_a_note_and_warns_above_the_limit() -> None:
    small = run(zero_grad=[tensor("gate", 10_000)])
    assert severities(small) == [("note", "implementation")]
    assert small.sentence.startswith("all 20") and small.findings[0].todo == ""
    large = run(zero_grad=[tensor("gate", 10_001), tensor("bias", 9)])
    assert severities(large) == [("warn", "implementation")]
    assert large.sentence == (
        "2 trainable tensors (1.001 % of the parameters) never got a gradient other than 0: "
        "gate, bias"
    )
    assert "design" not in large.sentence
    assert severities(run(0.02, zero_grad=[tensor("gate", 10_001)])) == [("note", "implementation")]


def test_a_zero_gradient_is_said_once_also_where_it_stood_still() -> None:
    both = run(zero_grad=[tensor("gate", 64)], still=[still("gate", 64, grad=0.0)])
    assert severities(both) == [("note", "implementation")]
    old = run(still=[still("gate", 900_000, grad=0.0)])  # evidence of an earlier version
    assert severities(old) == [("warn", "implementation")] and "90 %" in old.sentence


def test_a_tensor_without_gradient_is_reported_once() -> None:
    result = run(still=[still("head", 64, grad=0.0)], no_grad=[tensor("head", 64)])
    assert severities(result) == [("warn", "implementation")]


@pytest.mark.parametrize("grad", [math.nan, math.inf, 1e-30])
def test_any_other_gradient_is_a_gradient(grad: float) -> None:
    assert severities(run(still=[still("a", 900_000, grad=grad)])) == [("fail", "precision")]


def test_parameters_without_a_gradient_fail_above_the_limit() -> None:
    assert severities(run(no_grad=[tensor("head", 10_000)])) == [("warn", "implementation")]
    result = run(no_grad=[tensor("head", 300_000)])
    assert severities(result) == [("fail", "implementation")]
    assert result.sentence == (
        "1 trainable tensor (30 % of the parameters) never got a gradient: head"
    )
    assert "part of the loss" in result.findings[0].todo
    assert "requires_grad=False" in result.findings[0].todo
    assert severities(run(0.3, no_grad=[tensor("head", 300_000)])) == [("warn", "implementation")]


def test_failures_come_before_warnings() -> None:
    result = run(still=[still("norm", 64)], no_grad=[tensor("head", 300_000)])
    assert severities(result) == [("fail", "implementation"), ("warn", "precision")]
    assert "head" in result.sentence


def test_frozen_moved_fails_and_no_grad_warns() -> None:
    result = run(
        frozen_moved=[tensor("embed", 64)], no_grad=[tensor("head", 64), tensor("tail", 65)]
    )
    assert severities(result) == [("fail", "implementation"), ("warn", "implementation")]
    assert result.sentence == "1 frozen tensor moved: embed"
    assert result.findings[1].sentence.endswith("never got a gradient: tail, head")


def test_only_five_names_are_shown() -> None:
    result = run(no_grad=[tensor(f"t{i}", 10) for i in range(7)])
    assert result.sentence.endswith("t0, t1, t2, t3, t4 and 2 more")
    result = run(no_grad=[tensor(f"t{i}", 10) for i in range(5)])
    assert result.sentence.endswith("t0, t1, t2, t3, t4")
    assert result.limit.startswith("at most 1 % of the parameters")


def test_without_evidence_or_parameters_nothing_is_measured() -> None:
    view = with_baseline(build_view(), evidence=())
    assert view.baseline is not None
    assert not check(view, make_gates(), view.baseline).measured
    assert not run(num_parameters=0).measured
    view = build_view()
    assert not check(view, make_gates(), view.arms["lr_x1_3"]).measured
