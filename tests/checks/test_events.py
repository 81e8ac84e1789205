"""The gate `events` over planted series: what the window tier finds becomes the gate's state."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from pilot.checks.events import ELSEWHERE, check
from pilot.checks.registry import CheckResult
from pilot.records import StepRecord
from tests.factories import build_view, make_gates, make_step, with_baseline


def losses(num: int = 160, seed: int = 0) -> np.ndarray:
    """A healthy fall from 3 to 2.5 with a noise of 2 %."""
    noise = np.random.default_rng(seed).normal(0.0, 0.05, num)
    return 2.5 + 0.5 * np.exp(-np.arange(num) / 40.0) + noise


def records(values: Sequence[float], norms: Sequence[float] | None = None) -> list[StepRecord]:
    rng = np.random.default_rng(1)
    own = 0.5 * np.exp(rng.normal(0.0, 0.15, len(values))) if norms is None else norms
    return [
        make_step(i + 1, loss=float(v), grad_norm=float(g), finite_loss=math.isfinite(v))
        for i, (v, g) in enumerate(zip(values, own, strict=True))
    ]


def judged(steps: list[StepRecord], more: Sequence[StepRecord] = (), **survey: str) -> CheckResult:
    view = with_baseline(build_view(survey=survey), steps=tuple(steps), extension=tuple(more))
    assert view.baseline is not None
    return check(view, make_gates(), view.baseline)


def severities(result: CheckResult) -> list[str]:
    return [finding.severity for finding in result.findings]


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_series_passes(seed: int) -> None:
    result = judged(records(losses(seed=seed)))
    assert result.measured
    assert severities(result) in ([], ["note"])


def test_a_constant_loss_has_no_event() -> None:
    result = judged(records([2.0] * 160, [0.5] * 160))
    assert result.measured and result.findings == ()
    assert result.sentence == "no spike, shift or trend in 160 steps"


def test_a_loss_that_never_recovers_fails() -> None:
    values = losses()
    values[80:] += 2.0
    result = judged(records(values))
    assert severities(result)[0] == "fail"
    finding = result.findings[0]
    assert finding.numbers["kind"] == "never_recovers"
    assert finding.step is not None and 79 <= finding.step <= 83
    assert "optimizer state" in finding.todo


def test_one_spike_that_recovers_is_no_reason_to_stop() -> None:
    values = losses()
    values[80] += 2.0
    result = judged(records(values))
    assert "fail" not in severities(result) and "undetermined" not in severities(result)
    assert [f.numbers["first_step"] for f in result.findings] == [81]


def test_a_jump_just_before_the_end_is_undetermined_and_an_extension_decides_it() -> None:
    values = losses(200)
    values[132:] += 2.0
    steps = records(values)
    assert "undetermined" in severities(judged(steps[:138]))
    assert severities(judged(steps[:138], steps[138:]))[0] == "fail"


def test_a_spike_just_before_the_end_that_comes_back_in_the_extension_passes() -> None:
    values = losses(200)
    values[136:140] += 2.0
    steps = records(values)
    assert "undetermined" in severities(judged(steps[:138]))
    extended = judged(steps[:138], steps[138:])
    assert not {"fail", "undetermined"} & set(severities(extended))
    assert "extended by 62 steps" in extended.sentence


def test_non_finite_values_are_the_gate_finites_and_silence_nothing() -> None:
    values = losses()
    values[40] = math.nan
    values[80:] += 2.0
    result = judged(records(values))
    kinds = {finding.numbers["kind"] for finding in result.findings}
    assert not kinds & set(ELSEWHERE)
    assert severities(result)[0] == "fail"


def test_no_steps_measure_nothing() -> None:
    result = judged([])
    assert not result.measured and result.reason == "no step was recorded"
