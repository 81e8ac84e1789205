"""Which arm is the reference of the gate ``progress``."""

from __future__ import annotations

import dataclasses
from typing import Any

from pilot.checks.progress import check
from pilot.checks.reference import best_reference, learning_rate_of
from pilot.checks.registry import CheckResult
from pilot.records import ValidationRecord
from pilot.view import ArmView, PilotView
from tests.factories import LOWER, build_view, make_gates, without_arm


def run(view: PilotView) -> CheckResult:
    assert view.baseline is not None
    return check(view, make_gates(), view.baseline)


def severity(result: CheckResult) -> str:
    return result.findings[0].severity if result.findings else "pass"


def other_arm(view: PilotView, name: str, value: str, **changes: Any) -> PilotView:
    arm = view.arms[LOWER]
    variable, title = changes.pop("variable", arm.job.variable), name.replace("lr_x1_", "lr x1/")
    job = dataclasses.replace(arm.job, arm=name, value=value, variable=variable, title=title)
    return dataclasses.replace(
        view, arms={**view.arms, name: dataclasses.replace(arm, job=job, **changes)}
    )


def final_of(view: PilotView, final: float) -> tuple[ValidationRecord, ...]:
    donor: ArmView = build_view(lower={"final": final}).arms[LOWER]
    return donor.validations


def test_the_best_of_several_lower_arms_is_the_reference() -> None:
    view = build_view()
    view = other_arm(view, "lr_x1_10", "0.0003", validations=final_of(view, 1.5))
    view = other_arm(view, "lr_x1_30", "0.0001", validations=final_of(view, 1.9))
    assert view.baseline is not None
    reference = best_reference(view, make_gates(), view.baseline)
    assert reference.arm is not None and reference.arm.job.arm == "lr_x1_10"
    assert "lr x1/10" in run(view).sentence


def test_only_arms_of_a_lower_rate_count() -> None:
    view = without_arm(other_arm(build_view(), "lr_x3", "0.009"), LOWER)
    assert "no arm of a lower rate ran" in run(view).sentence
    base = build_view()
    for name, value, variable in (
        ("same", "0.003", "optim.learning_rate"),
        ("clip_off", "0.0001", "optim.max_grad_norm"),
        ("words", "small", "optim.learning_rate"),
        ("zero", "0", "optim.learning_rate"),
        ("nan", "nan", "optim.learning_rate"),
    ):
        view = without_arm(other_arm(base, name, value, variable=variable), LOWER)
        assert "no arm of a lower rate ran" in run(view).sentence, name


def test_an_arm_is_judged_against_still_lower_ones() -> None:
    view = build_view()
    lower = view.arms[LOWER]
    assert learning_rate_of(view, lower) == 0.001
    alone = check(view, make_gates(), lower)
    assert severity(alone) == "undetermined" and "no arm of a lower rate ran" in alone.sentence
    view = other_arm(view, "lr_x1_10", "0.0003")
    assert severity(check(view, make_gates(), view.arms[LOWER])) == "pass"


def test_equal_arms_the_first_by_name_is_the_reference() -> None:
    view = other_arm(build_view(), "lr_x1_10", "0.0003")
    assert view.baseline is not None
    reference = best_reference(view, make_gates(), view.baseline)
    assert reference.arm is not None and reference.arm.job.arm == "lr_x1_10"
