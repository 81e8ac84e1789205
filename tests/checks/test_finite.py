from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from pilot.checks.finite import check
from pilot.checks.registry import CheckResult
from pilot.records import Outcome, StepRecord
from pilot.view import PilotView
from tests.factories import (
    build_view,
    make_gates,
    make_movement,
    make_validation,
    with_baseline,
)


def run(view: PilotView, **gate: Any) -> CheckResult:
    assert view.baseline is not None
    return check(view, make_gates(finite=gate), view.baseline)


def edited(step: int, **changes: Any) -> PilotView:
    """A pilot with one step record changed."""

    def edit(record: StepRecord) -> StepRecord:
        return dataclasses.replace(record, **changes) if record.step == step else record

    return build_view(baseline={"edit": edit})


def fp16(*skipped: int, scale: float = 1024.0, first_scale: float | None = None) -> PilotView:
    """A pilot under a loss scaler whose optimizer skipped the given steps."""

    def edit(record: StepRecord) -> StepRecord:
        skip = record.step in skipped
        return dataclasses.replace(
            record,
            loss_scale=scale,
            step_skipped=skip,
            grad_norm=math.inf if skip else record.grad_norm,
            finite_grads=not skip,
        )

    return build_view(baseline={"edit": edit})


def test_healthy_run_passes_and_counts_its_steps() -> None:
    result = run(build_view())
    assert result.measured and result.findings == ()
    assert result.sentence == "loss, gradient and weights are finite at 56 steps"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("field", "flag", "word"),
    [
        ("loss", "finite_loss", "loss is"),
        ("grad_norm", "finite_grads", "gradient is"),
        ("param_norm", "finite_params", "weights are"),
    ],
)
def test_each_quantity_fails_by_value_and_by_flag(
    bad: float, field: str, flag: str, word: str
) -> None:
    for change in ({field: bad}, {flag: False}, {field: bad, flag: False}):
        result = run(edited(7, **change))
        assert [f.severity for f in result.findings] == ["fail"]
        assert result.findings[0].step == 7
        assert result.sentence.startswith(f"{word} not finite at step 7 ")


def test_first_bad_step_is_named_with_rows_and_count() -> None:
    def edit(record: StepRecord) -> StepRecord:
        return dataclasses.replace(record, loss=math.nan) if record.step >= 20 else record

    view = build_view(baseline={"edit": edit})
    (finding,) = run(view).findings
    assert view.baseline is not None
    rows = view.baseline.steps[19].row_ids
    assert finding.step == 20 and finding.numbers["row_ids"] == list(rows)
    assert finding.numbers["num_non_finite_steps"] == 37
    assert ", ".join(str(r) for r in rows) in finding.sentence


def test_no_supervised_token_is_data_not_damage() -> None:
    (finding,) = run(edited(7, loss=math.nan, finite_loss=False, num_supervised_tokens=0)).findings
    assert finding.category == "data" and "no supervised token" in finding.sentence
    (finding,) = run(edited(7, loss=math.nan, finite_loss=False)).findings
    assert finding.category == "undetermined" and "labels and denominator" in finding.sentence


def test_hints_separate_the_look_alikes() -> None:
    assert "optimizer first" in run(edited(7, param_norm=math.inf)).sentence
    assert "forward and loss were finite" in run(edited(7, grad_norm=math.nan)).sentence
    both = run(edited(7, loss=math.inf, grad_norm=math.nan)).sentence
    assert both.startswith("loss and gradient are not finite")
    assert both.endswith("the loss was not finite already")


def test_cool_down_counts() -> None:
    assert run(edited(52, loss=math.nan)).findings[0].step == 52


def test_validation_of_any_set_counts() -> None:
    for name, primary in (("held_out", True), ("other", False)):
        view = build_view()
        assert view.baseline is not None
        bad = make_validation("peak_end", 48, math.nan, name=name, primary=primary)
        result = run(with_baseline(view, validations=(*view.baseline.validations, bad)))
        (finding,) = result.findings
        assert finding.obj == name and "at the end of the peak segment" in finding.sentence
        assert finding.numbers["num_non_finite_examples"] == 1


def test_one_infinite_example_is_enough() -> None:
    view = build_view()
    assert view.baseline is not None
    last = view.baseline.validations[-1]
    sums = (*last.loss_sums[:-1], math.inf)
    bad = dataclasses.replace(last, loss_sums=sums)  # the mean itself was written as finite
    result = run(with_baseline(view, validations=(*view.baseline.validations, bad)))
    assert result.findings[0].severity == "fail" and "row 63" in result.sentence


def test_parameters_that_are_not_finite_are_named() -> None:
    rows = [{"name": "norm", "num_elements": 8}, {"name": "embed", "num_elements": 64}]
    result = run(with_baseline(build_view(), evidence=(make_movement(non_finite=rows),)))
    (finding,) = result.findings
    assert (finding.severity, finding.step, finding.obj) == ("fail", 48, "embed, norm")
    assert result.sentence == "2 tensors with NaN or inf after step 48: embed, norm"
    for evidence in ((make_movement(non_finite=[]),), (make_movement(),), ()):
        assert run(with_baseline(build_view(), evidence=evidence)).findings == ()


def test_the_last_attempt_of_a_validation_wins() -> None:
    view = build_view()
    assert view.baseline is not None
    bad = make_validation("before", 0, math.nan)
    view = with_baseline(view, validations=(bad, *view.baseline.validations))
    assert run(view).findings == ()


def test_the_earliest_offence_leads() -> None:
    view = edited(40, loss=math.nan)
    assert view.baseline is not None
    bad = make_validation("warmup_end", 12, math.nan)
    result = run(with_baseline(view, validations=(*view.baseline.validations, bad)))
    assert [f.step for f in result.findings] == [12, 40]
    assert result.sentence == result.findings[0].sentence


def test_stopped_without_a_record_still_fails() -> None:
    outcome = Outcome(status=Outcome.STOPPED, last_step=7, step=9, message="loss is nan")
    result = run(build_view(baseline={"last_step": 8, "outcome": outcome}))
    (finding,) = result.findings
    assert finding.severity == "fail" and finding.step == 9 and "loss is nan" in finding.sentence
    outcome = Outcome(status=Outcome.STOPPED, last_step=7)
    assert run(build_view(baseline={"last_step": 8, "outcome": outcome})).findings[0].step == 7


def test_stopped_with_a_record_is_said_once() -> None:
    def edit(record: StepRecord) -> StepRecord:
        return dataclasses.replace(record, loss=math.nan) if record.step == 8 else record

    assert len(run(build_view(baseline={"last_step": 8, "edit": edit})).findings) == 1


def test_nothing_recorded_is_not_measured() -> None:
    view = with_baseline(build_view(), steps=(), cooldown=(), validations=())
    result = run(view)
    assert not result.measured and "no step" in result.reason
    bad = make_validation("before", 0, math.nan)
    assert run(with_baseline(view, validations=(bad,))).findings[0].severity == "fail"


def test_scaler_may_skip_while_its_scale_falls() -> None:
    assert run(fp16(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)).findings == ()


def test_scaler_skip_needs_a_scaler_and_a_skip() -> None:
    no_skip = run(edited(3, loss_scale=512.0, grad_norm=math.inf, finite_grads=False))
    assert "gradient is not finite at step 3" in no_skip.sentence
    no_scaler = run(edited(3, step_skipped=True))
    assert no_scaler.findings[0].step == 3 and "without a loss scaler" in no_scaler.sentence


def test_scaler_skip_does_not_excuse_loss_or_weights() -> None:
    skipped = {"loss_scale": 512.0, "step_skipped": True, "grad_norm": math.inf}
    assert "loss is not finite" in run(edited(3, loss=math.nan, **skipped)).sentence
    assert "weights are not finite" in run(edited(3, param_norm=math.nan, **skipped)).sentence


def test_share_of_skipped_steps_is_rounded_up() -> None:
    # 56 steps after the first success: 1 % is 0.56, so one skip is allowed and two are not.
    assert run(fp16(20)).findings == ()
    (finding,) = run(fp16(20, 30)).findings
    assert finding.severity == "fail" and finding.step == 30
    assert "2 of 56 steps were skipped" in finding.sentence
    assert run(fp16(20, 30), max_skipped_frac=2 / 56).findings == ()
    assert len(run(fp16(20), max_skipped_frac=0.0).findings) == 1


def test_steps_before_the_first_success_are_not_in_the_share() -> None:
    assert run(fp16(1, 2, 3, 20)).findings == ()
    (finding,) = run(fp16(1, 2, 3, 20, 30)).findings
    assert "2 of 53 steps" in finding.sentence


def test_skips_in_a_row_have_a_limit_of_their_own() -> None:
    free = {"max_skipped_frac": 1.0}
    assert run(fp16(20, 21, 22, 23), **free).findings == ()
    (finding,) = run(fp16(20, 21, 22, 23, 24), **free).findings
    assert finding.step == 24 and "5 steps in a row" in finding.sentence
    assert run(fp16(20, 21, 22, 24, 25, 26), **free).findings == ()  # a success between
    assert len(run(fp16(46, 47, 48, 49, 50), **free).findings) == 1  # into the cool-down


def test_scale_below_one_fails() -> None:
    assert run(fp16(scale=1.0)).findings == ()
    (finding,) = run(fp16(scale=0.5)).findings
    assert "fell to 0.5" in finding.sentence and finding.step == 1
    assert run(fp16(scale=math.nan)).findings != ()


def test_no_success_at_all_fails() -> None:
    assert "no optimizer step ever succeeded" in run(fp16(*range(1, 57))).sentence


def test_works_on_another_arm() -> None:
    view = build_view(lower={"edit": lambda r: dataclasses.replace(r, loss=math.nan)})
    assert check(view, make_gates(), view.arms["lr_x1_3"]).findings[0].step == 1
    assert run(view).findings == ()
