"""The checks without much of a rule: memory, clipping, determinism, order."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from pilot.checks import clipping, determinism, memory, order
from pilot.checks.registry import CheckResult
from pilot.records import Resource
from tests.factories import build_view, make_evidence, make_gates, make_survey, with_baseline


def memory_of(*resources: Resource, **gate: Any) -> CheckResult:
    view = with_baseline(build_view(), resources=resources)
    assert view.baseline is not None
    return memory.check(view, make_gates(memory=gate), view.baseline)


def used(kind: str, peak: int | None, limit: int | None = 1000) -> Resource:
    return Resource(kind=kind, step=1, secs=1.0, peak_memory_bytes=peak, num_bytes=limit)


def test_headroom_of_exactly_the_limit_passes() -> None:
    result = memory_of(used("memory_longest", 750), min_headroom_frac=0.25)
    assert result.measured and result.findings == () and "25 % free" in result.sentence
    assert result.limit == "at least 25 % free at the worst moment"
    result = memory_of(used("memory_longest", 751), min_headroom_frac=0.25)
    assert [f.severity for f in result.findings] == ["warn"]


def test_the_tightest_place_is_named() -> None:
    result = memory_of(
        used("memory_longest", 100), used("memory_saving", 990), used("memory_validation", 500)
    )
    assert result.findings[0].obj == "in saving" and "1 % free in saving" in result.sentence


def test_more_than_the_limit_warns() -> None:
    assert len(memory_of(used("memory_validation", 1500)).findings) == 1


def test_memory_that_is_unknown_is_not_measured() -> None:
    for resource in (
        used("memory_longest", None),
        used("memory_longest", 100, None),
        used("memory_longest", 100, 0),
        used("checkpoint", 100),  # its bytes are a size, not a limit
    ):
        assert not memory_of(resource).measured
    assert not memory_of().measured


def clip_of(coefs: list[float], **config: Any) -> CheckResult:
    view = build_view(config=config)
    assert view.baseline is not None
    steps = list(view.baseline.steps)
    for index, coef in enumerate(coefs):
        steps[12 + index] = dataclasses.replace(steps[12 + index], clip_coef=coef)
    view = with_baseline(view, steps=tuple(steps[: 12 + len(coefs)]))
    assert view.baseline is not None
    return clipping.check(view, make_gates(), view.baseline)


def test_clip_fraction_is_a_note() -> None:
    (finding,) = clip_of([1.0, 0.5, 0.99, 1.0]).findings
    assert finding.severity == "note" and finding.sentence.startswith("2 of 4 peak steps clipped")
    assert finding.numbers == {"clip_frac": 0.5, "median_clip_coef": 0.995}


def test_a_median_below_a_tenth_warns_and_exactly_a_tenth_does_not() -> None:
    assert clip_of([0.1, 0.1, 0.1]).findings[0].severity == "note"
    assert clip_of([0.0999, 0.0999, 0.5]).findings[0].severity == "warn"


def test_warm_up_is_not_counted_and_non_finite_is_left_out() -> None:
    view = build_view()
    assert view.baseline is not None
    low = tuple(
        dataclasses.replace(r, clip_coef=0.01 if r.step <= 12 else 1.0) for r in view.baseline.steps
    )
    view = with_baseline(view, steps=low)
    assert view.baseline is not None
    result = clipping.check(view, make_gates(), view.baseline)
    assert result.sentence.startswith("0 of 36 peak steps clipped, median coefficient 1")
    (finding,) = clip_of([math.nan, 0.5, math.inf]).findings
    assert finding.sentence.startswith("1 of 1 peak step clipped")


def test_gradients_above_the_norm_that_nothing_clipped() -> None:
    view = build_view(config={"optim__max_grad_norm": 0.5})
    assert view.baseline is not None
    for coef, norm, words in (
        (1.0, 2.0, "the clip norm is 0.5, and 48 of 48 steps above it were not clipped to it"),
        (0.25, 2.0, ""),
        (0.26, 2.0, ""),  # rounding
        (1.0, 0.5, ""),
        (1.0, math.nan, ""),
        (1.0, math.inf, ""),
    ):
        steps = [
            dataclasses.replace(r, clip_coef=coef, grad_norm=norm) for r in view.baseline.steps
        ]
        changed = with_baseline(view, steps=tuple(steps))
        assert changed.baseline is not None
        result = clipping.check(changed, make_gates(), changed.baseline)
        found = [f.sentence for f in result.findings if f.category == "implementation"]
        assert found == ([words] if words else [])


def test_clipping_that_is_off_or_without_peak_is_not_measured() -> None:
    assert not clip_of([0.5], optim__max_grad_norm=None).measured
    assert not clip_of([]).measured
    assert not clip_of([math.nan]).measured


def test_an_arm_without_clipping_is_judged_by_its_own_value() -> None:
    view = build_view(lower={"variable": "optim.max_grad_norm", "value": "null"})
    assert not clipping.check(view, make_gates(), view.arms["lr_x1_3"]).measured
    view = build_view(
        config={"optim__max_grad_norm": None},
        lower={"variable": "optim.max_grad_norm", "value": "1.0"},
    )
    assert clipping.check(view, make_gates(), view.arms["lr_x1_3"]).measured


@pytest.mark.parametrize(
    ("spread", "moved", "words"),
    [
        (0.0, 0.0, "the same bits"),
        (1e-6, 2e-7, "differ by 1e-06 (relative) and 2e-07"),
        (0.0, 2e-7, "differ by 0 (relative)"),
        (math.inf, 0.0, "one was finite and the other was not"),
        (math.nan, 0.0, "one was finite and the other was not"),
    ],
)
def test_determinism_is_a_note(spread: float, moved: float, words: str) -> None:
    evidence = make_evidence("determinism", 1, relative_spread=spread, max_param_diff=moved)
    view = with_baseline(build_view(), evidence=(evidence,))
    assert view.baseline is not None
    (finding,) = determinism.check(view, make_gates(), view.baseline).findings
    assert finding.severity == "note" and words in finding.sentence


def test_determinism_without_evidence_is_not_measured() -> None:
    for evidence in ((), (make_evidence("determinism", 1),)):
        view = with_baseline(build_view(), evidence=evidence)
        assert view.baseline is not None
        assert not determinism.check(view, make_gates(), view.baseline).measured


def order_of(**changes: Any) -> CheckResult:
    audit = {**make_survey()["order_audit"], **changes}
    view = build_view(survey={"order_audit": audit})
    assert view.baseline is not None
    return order.check(view, make_gates(), view.baseline)


def test_mixed_sources_are_a_note_and_blocks_warn() -> None:
    (note,) = order_of().findings
    assert note.severity == "note" and "3 sources mixed over 480 rows" in note.sentence
    (warn,) = order_of(blocked=True, longest_run=300, longest_run_source=1).findings
    assert warn.severity == "warn"
    assert warn.sentence == "sources come in blocks: 300 rows in a row of prose (random: below 27)"
    for code in (3, -1, None):
        (warn,) = order_of(blocked=True, longest_run_source=code).findings
        assert "in a row of unknown" in warn.sentence
    (warn,) = order_of(blocked=True, longest_run_source=0).findings
    assert "in a row of code" in warn.sentence


def test_a_second_epoch_in_the_same_order_warns() -> None:
    assert [f.severity for f in order_of(second_epoch_differs=False).findings] == ["note", "warn"]
    assert [f.severity for f in order_of(second_epoch_differs=None).findings] == ["note"]


def test_an_order_that_was_not_audited_is_not_measured() -> None:
    assert not order_of(num_rows=0).measured
    view = build_view(survey={"order_audit": None})
    assert view.baseline is not None
    assert not order.check(view, make_gates(), view.baseline).measured
