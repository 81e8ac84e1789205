"""Gate ``schedule``: planned rates pass, every other one is found and explained where proven."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pilot.checks.registry import CheckResult, run_check
from pilot.records import StepRecord
from pilot.schedule import RateTable
from pilot.view import PilotView
from tests.factories import LOWER, build_view, make_evidence, make_gates, with_arm, with_baseline

COSINE = {"full_run__schedule": "cosine"}


def judged(view: PilotView, arm: str | None = None) -> CheckResult:
    return run_check("schedule", view, make_gates(), view.arms[arm] if arm else None)


def used(rate_of: Callable[[PilotView, StepRecord], Any], **config: Any) -> PilotView:
    """A pilot whose baseline used other rates in its steps (the cool-down is left)."""
    view = build_view(config={**COSINE, **config})
    assert view.baseline is not None
    steps = tuple(
        dataclasses.replace(record, learning_rate=rate_of(view, record))
        for record in view.baseline.steps
    )
    return with_baseline(view, steps=steps)


def planned(view: PilotView, step: int) -> float:
    return view.plan.schedule.learning_rate_at(step)


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "wsd"])
def test_the_planned_rates_pass(kind: str) -> None:
    view = build_view(config={"full_run__schedule": kind})
    for arm in (None, LOWER):
        result = judged(view, arm)
        assert result.measured and result.findings == ()
        assert result.sentence == "the learning rate is the planned one at 56 steps"


def test_a_wrong_rate_has_its_step_both_rates_and_a_count() -> None:
    view = used(lambda v, r: planned(v, r.step) * (1.01 if r.step in (20, 30) else 1.0))
    result = judged(view)
    (finding,) = result.findings
    assert (finding.severity, finding.category, finding.step) == ("fail", "implementation", 20)
    assert finding.sentence == (
        "the learning rate at step 20 is 0.003028, the planned one is 0.002998; "
        "2 of 56 steps differ"
    )
    assert finding.numbers["num_other_steps"] == 2 and finding.todo


@pytest.mark.parametrize(
    ("factor", "fails"), [(1 + 2e-7, False), (1 - 9e-7, False), (1.00001, True)]
)
def test_what_float32_rounds_is_no_difference(factor: float, fails: bool) -> None:
    assert bool(judged(used(lambda v, r: planned(v, r.step) * factor)).findings) is fails


def asked(stride: int, ahead: int) -> Callable[[PilotView, StepRecord], float]:
    return lambda view, record: planned(view, max(1, 1 + (record.step - 1) * stride + ahead))


@pytest.mark.parametrize(
    ("accumulate", "stride", "ahead", "words"),
    [
        (2, 3, 2, "stepped 3 times per optimizer step: once per micro-batch, and once more by"),
        (3, 4, 3, "stepped 4 times per optimizer step: once per micro-batch, and once more by"),
        (3, 3, 2, "stepped 3 times per optimizer step: once per micro-batch"),
        (3, 3, 0, "stepped 3 times per optimizer step: once per micro-batch"),
        (1, 2, 1, "stepped 2 times per optimizer step"),
        (5, 6, 5, "stepped 6 times per optimizer step: once per micro-batch, and once more"),
        (1, 1, -1, "the schedule is 1 step behind the plan at every step"),
        (1, 1, 1, "the schedule is 1 step ahead of the plan at every step"),
    ],
)
def test_how_often_it_was_stepped(accumulate: int, stride: int, ahead: int, words: str) -> None:
    batch = {"batch__grad_accum_steps": accumulate, "batch__micro_batch_size": 4}
    view = used(asked(stride, ahead), **batch)
    (finding,) = judged(view).findings
    assert words in finding.sentence


def test_once_per_process() -> None:
    view = dataclasses.replace(used(asked(6, 0)), fingerprint={"world_size": 6})
    assert (
        judged(view).findings[0].sentence.endswith("6 times per optimizer step: once per process")
    )


def test_never_stepped_and_constant() -> None:
    (finding,) = judged(used(lambda v, r: planned(v, 1))).findings
    assert finding.sentence.endswith(
        "0 at every step, the first one's: the scheduler is never stepped"
    )
    (finding,) = judged(used(lambda v, r: 1e-3)).findings
    assert finding.sentence.endswith(": it is 0.001 at every step")


def test_another_peak() -> None:
    (finding,) = judged(used(lambda v, r: 8 * planned(v, r.step))).findings
    assert finding.sentence.endswith("every rate is 8 times the planned one")


def test_what_nothing_explains_is_not_explained() -> None:
    (finding,) = judged(used(lambda v, r: planned(v, r.step) + 1e-4 * math.sin(r.step))).findings
    assert finding.sentence.endswith("steps differ")


def test_too_many_times_on_a_constant_rate_is_no_difference() -> None:
    """Nobody can see it, and nothing was trained otherwise."""
    view = build_view(config={"full_run__warmup_steps": 0})
    assert judged(view).findings == ()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_rate_that_is_no_number(value: float) -> None:
    view = used(lambda v, r: value if r.step == 9 else planned(v, r.step))
    (finding,) = judged(view).findings
    assert finding.step == 9 and "not a number" in finding.sentence
    assert finding.numbers["num_other_steps"] == 1


def test_missing_rates_are_left_out() -> None:
    view = used(lambda v, r: None if r.step % 2 else planned(v, r.step))
    assert judged(view).numbers == {"num_steps": 32, "num_other_steps": 0}
    view = with_baseline(used(lambda v, r: None), cooldown=())
    result = judged(view)
    assert not result.measured and "no step with" in result.reason


def skipped(at: Mapping[int, int], lag: Callable[[int], int]) -> PilotView:
    """fp16: the steps in ``at`` were skipped; the rate lags behind by ``lag(step)``."""
    view = used(lambda v, r: planned(v, max(1, r.step - lag(r.step))))
    assert view.baseline is not None
    steps = tuple(
        dataclasses.replace(record, step_skipped=record.step in at, loss_scale=8.0)
        for record in view.baseline.steps
    )
    return with_baseline(view, steps=steps)


def test_a_skipped_step_may_hold_the_schedule_back_by_one() -> None:
    at = {1: 1, 2: 1, 20: 1}
    held = skipped(at, lambda step: sum(step > s for s in at))
    assert judged(held).findings == ()
    assert judged(skipped(at, lambda step: 0)).findings == ()  # the fused optimizer hides it
    assert judged(skipped(at, lambda step: int(step > 2))).findings == ()
    too_far = skipped(at, lambda step: 4 * (step > 20))
    assert judged(too_far).findings[0].step == 21
    late = skipped(at, lambda step: int(step > 10))  # held back, but not after a skipped step
    assert judged(late).findings[0].step == 11


def test_a_lag_without_a_skip_fails() -> None:
    view = used(lambda v, r: planned(v, r.step - (r.step > 30)))
    (finding,) = judged(view).findings
    assert finding.step == 31 and finding.numbers["num_other_steps"] == 18


def test_the_cool_down_is_judged_too() -> None:
    view = build_view()
    assert view.baseline is not None
    cooldown = tuple(dataclasses.replace(r, learning_rate=3e-3) for r in view.baseline.cooldown)
    (finding,) = judged(with_baseline(view, cooldown=cooldown)).findings
    assert finding.step == 49 and finding.numbers["num_other_steps"] == 8
    assert finding.numbers["planned_learning_rate"] == pytest.approx(3e-3 * 8 / 9)


def test_the_extension_goes_on_with_the_schedule() -> None:
    view = build_view(config=COSINE)
    assert view.baseline is not None
    last = view.baseline.steps[-1]
    further = tuple(
        dataclasses.replace(last, step=step, learning_rate=planned(view, step))
        for step in range(49, 60)
    )
    assert judged(with_baseline(view, extension=further)).numbers["num_steps"] == 56 + 11
    wrong = (*further[:-1], dataclasses.replace(further[-1], learning_rate=planned(view, 58)))
    assert judged(with_baseline(view, extension=wrong)).findings[0].step == 59


def test_a_pilot_from_the_middle() -> None:
    view = build_view(config={**COSINE, "full_run__start_step": 40})
    assert judged(view).findings == () and judged(view).measured
    view = used(lambda v, r: planned(v, r.step - 40), full_run__start_step=40)
    (finding,) = judged(view).findings
    assert finding.step == 41 and "the schedule begins anew with step 41" in finding.sentence


def test_an_arm_follows_its_own_schedule() -> None:
    view = build_view(config=COSINE)
    arm = view.arms[LOWER]
    job = dataclasses.replace(arm.job, variable="full_run.schedule", value="linear")
    tree = build_view(config={"full_run__schedule": "linear"})
    lower = dataclasses.replace(tree.arms["baseline"], job=job)
    view = dataclasses.replace(view, arms={**view.arms, LOWER: lower})
    assert judged(view, LOWER).measured and judged(view, LOWER).findings == ()
    same = dataclasses.replace(lower, job=dataclasses.replace(job, value="constant"))
    wrong = dataclasses.replace(view, arms={**view.arms, LOWER: same})
    assert judged(wrong, LOWER).findings


def test_an_arm_follows_what_its_own_scheduler_planned() -> None:
    view = build_view(config=COSINE)
    arm = view.arms[LOWER]
    rates = [0.5 * planned(view, step) for step in range(1, 50)]
    facts: dict[str, Any] = {"first_step": 1, "rates": rates, "scales": [0.5], "unknown": ""}
    changed = with_arm(view, LOWER, evidence=(make_evidence("schedule", 0, **facts),))
    assert judged(changed, LOWER).findings[0].numbers["num_other_steps"] == 55  # the first is 0
    steps = tuple(dataclasses.replace(r, learning_rate=rates[r.step - 1]) for r in arm.steps)
    right = with_arm(changed, LOWER, steps=steps, cooldown=())
    assert judged(right, LOWER).findings == () and judged(right, LOWER).measured
    unknown = make_evidence("schedule", 0, **{**facts, "unknown": "reacts to metrics"})
    result = judged(with_arm(right, LOWER, evidence=(unknown,)), LOWER)
    assert not result.measured and result.reason == "reacts to metrics"


def table_view(unknown: str = "") -> PilotView:
    """A pilot of a table: the rates 1e-3, 2e-3, ... up to step 12, then falling."""
    view = build_view()
    rates = tuple(1e-3 * min(step, 12) * (1.0 if step < 40 else 0.95) for step in range(1, 60))
    table = RateTable(rates=rates, base_rate=0.003, unknown=unknown)
    from pilot.schedule import table_schedule

    schedule = table_schedule(0.003, 400, table)
    plan = dataclasses.replace(view.plan, schedule=schedule)
    assert view.baseline is not None
    steps = tuple(
        dataclasses.replace(r, learning_rate=rates[r.step - 1]) for r in view.baseline.steps
    )
    view = dataclasses.replace(view, plan=plan)
    return with_baseline(view, steps=steps, cooldown=())


def test_a_table_is_the_plan_unless_it_is_none() -> None:
    assert judged(table_view()).numbers == {"num_steps": 48, "num_other_steps": 0}
    result = judged(table_view("ReduceLROnPlateau reacts to metrics"))
    assert not result.measured and result.reason == "ReduceLROnPlateau reacts to metrics"
