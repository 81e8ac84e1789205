"""The training loss beside the arm of a lower rate."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from pilot.checks.paired_loss import check
from pilot.checks.registry import CheckResult
from pilot.records import StepRecord
from pilot.view import PilotView
from tests.factories import LOWER, build_view, make_gates, with_arm, with_baseline, without_arm

VIEW = build_view(config={"pilot__min_peak_steps": 128})


def shifted(view: PilotView, shift: float, sd: float = 0.0) -> PilotView:
    """The baseline's losses are the lower arm's plus ``shift`` and a noise."""
    noise = np.random.default_rng(0).normal(0.0, sd, 1000)
    low = view.arms[LOWER].steps

    def moved(record: StepRecord) -> StepRecord:
        loss = low[record.step - 1].loss + shift + float(noise[record.step])
        return dataclasses.replace(record, loss=loss)

    baseline = view.baseline
    assert baseline is not None
    return with_baseline(view, steps=tuple(moved(record) for record in baseline.steps))


def judged(view: PilotView) -> CheckResult:
    assert view.baseline is not None
    return check(view, make_gates(), view.baseline)


@pytest.mark.parametrize(
    ("shift", "warns"), [(-0.5, False), (0.0, False), (0.05, False), (0.3, True)]
)
def test_warns_when_the_loss_is_certainly_above(shift: float, warns: bool) -> None:
    result = judged(shifted(VIEW, shift, sd=0.05))
    assert result.measured
    assert [f.severity for f in result.findings] == (["warn"] if warns else [])
    assert result.numbers["difference"] == pytest.approx(shift, abs=0.03)


def test_a_difference_within_the_noise_is_none() -> None:
    assert judged(shifted(VIEW, 0.15, sd=1.0)).findings == ()


def test_non_finite_losses_never_enter() -> None:
    view = shifted(VIEW, 0.3)
    assert view.baseline is not None
    steps = list(view.baseline.steps)
    steps[40] = dataclasses.replace(steps[40], loss=math.nan)
    result = judged(with_baseline(view, steps=tuple(steps)))
    assert result.numbers["difference"] == pytest.approx(0.3)


def test_without_an_arm_or_with_other_rows_nothing_is_measured() -> None:
    assert judged(without_arm(VIEW, LOWER)).reason == "no stable arm of a lower learning rate"
    other = tuple(dataclasses.replace(r, row_hash="x") for r in VIEW.arms[LOWER].steps)
    assert judged(with_arm(VIEW, LOWER, steps=other)).reason == "too few paired steps at the peak"


def test_an_objective_whose_loss_measures_nothing() -> None:
    assert not judged(build_view(survey={"objective": "rl"})).measured
