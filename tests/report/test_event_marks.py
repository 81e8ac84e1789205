"""Events and the extension in the figure."""

from __future__ import annotations

import dataclasses
import math

import pytest

from pilot.judge import judge
from pilot.records import StepRecord
from pilot.report.figures import _figure
from pilot.view import PilotView
from tests.factories import build_view, make_gates, with_baseline

VIEW = build_view(config={"pilot__min_peak_steps": 128})


def raised(records: tuple[StepRecord, ...], first: int, last: int) -> tuple[StepRecord, ...]:
    return tuple(
        dataclasses.replace(r, loss=r.loss + 3.0, grad_norm=8.0) if first <= r.step <= last else r
        for r in records
    )


def with_jump(first: int, last: int, num_more: int = 0) -> PilotView:
    baseline = VIEW.baseline
    assert baseline is not None
    more = tuple(dataclasses.replace(baseline.steps[-1], step=141 + k) for k in range(num_more))
    steps = raised(baseline.steps, first, last)
    return with_baseline(VIEW, steps=steps, extension=raised(more, first, last))


def drawn(view: PilotView) -> tuple[set[str], tuple[float, float]]:
    """The words in the axes, and the limits of the steps."""
    figure = _figure(view, judge(view, make_gates()).verdict)
    texts = {text.get_text() for axes in figure.axes[:2] for text in axes.texts}
    return texts, figure.axes[0].get_xlim()


def test_an_event_is_named_where_it_happened() -> None:
    assert "never recovers" in drawn(with_jump(60, 999))[0]


def test_without_an_event_nothing_is_marked() -> None:
    texts, _ = drawn(VIEW)
    assert not texts & {"never recovers", "consecutive spikes", "extension"}


def test_the_extension_is_shown_to_its_end() -> None:
    texts, (_, right) = drawn(with_jump(138, 999, num_more=70))
    assert {"never recovers", "extension"} <= texts
    assert right >= 210


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e300])
def test_an_extension_with_strange_numbers_is_drawn(bad: float) -> None:
    view = with_jump(138, 999, num_more=20)
    assert view.baseline is not None
    more = list(view.baseline.extension)
    more[3] = dataclasses.replace(more[3], loss=bad, grad_norm=bad)
    texts, _ = drawn(with_baseline(view, extension=tuple(more)))
    assert "extension" in texts
