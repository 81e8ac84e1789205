from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pilot.records import StepRecord
from pilot.report import figures
from pilot.view import PilotView
from tests.factories import LOWER, build_view, with_baseline, without_arm

VERDICT = {"verdict": "NO-GO", "why": "loss $x$ is [red]not[/red] finite \x1b[31m"}


def _nan_from_20(record: StepRecord) -> StepRecord:
    if record.step < 20:
        return record
    return dataclasses.replace(
        record, loss=math.nan, grad_norm=math.inf, finite_loss=False, finite_grads=False
    )


def _figure(view: PilotView, verdict: dict[str, Any] | None = None) -> Any:
    return figures._figure(view, verdict or VERDICT)


def _texts(figure: Any) -> str:
    return " | ".join(t.get_text() for t in figure.texts)


def test_a_png_is_written_twice_the_same(tmp_path: Path) -> None:
    view = build_view()
    (path,) = figures.draw(view, {"verdict": "GO", "why": "fine"}, tmp_path / "figures")
    assert path == tmp_path / "figures" / "baseline.png"
    first = path.read_bytes()
    assert first.startswith(b"\x89PNG") and 30_000 < len(first) < 400_000
    figures.draw(view, {"verdict": "GO", "why": "fine"}, tmp_path / "figures")
    assert path.read_bytes() == first


def test_the_title_says_the_verdict_and_counts_non_finite_steps() -> None:
    view = build_view(baseline={"last_step": 21, "edit": _nan_from_20})
    text = _texts(_figure(view))
    assert "NO-GO" in text
    assert "2 non-finite steps (x), first at 20" in text
    assert "loss $x$ is [red]not[/red] finite" in text and "\x1b" not in text
    assert "non-finite" not in _texts(_figure(build_view(), {"verdict": "GO", "why": ""}))


def test_curves_segments_and_limit_are_there() -> None:
    loss, norm, rate = _figure(build_view()).axes
    assert {t.get_text() for t in loss.texts} == {"warm-up", "peak", "cool-down"}
    labels = loss.get_legend_handles_labels()[1]
    assert labels == [
        "baseline, train (median of 5)",
        "baseline, validation",
        "lr x1/3, train (median of 5)",
        "lr x1/3, validation",
    ]
    markers = [(m.get_xdata()[0], m.get_marker()) for m in loss.lines if m.get_marker() != "None"]
    assert markers[:4] == [(0, "o"), (12, "^"), (48, "s"), (56, "D")]
    assert norm.get_yscale() == "log"
    assert [t.get_text() for t in norm.texts] == ["clipped above 1"]
    assert len(rate.lines[0].get_xdata()) == 56
    assert loss.get_xlim()[0] < 0 and loss.get_xlim()[1] > 56


def test_an_explosion_gets_a_log_axis_and_overflow_none_at_all(tmp_path: Path) -> None:
    def explode(record: StepRecord) -> StepRecord:
        huge = 1e60 if record.step == 40 else 1e300 if record.step > 40 else 2.0
        return dataclasses.replace(record, loss=huge, grad_norm=huge)

    view = build_view(baseline={"edit": explode})
    assert _figure(view).axes[0].get_yscale() == "log"
    figures.draw(view, VERDICT, tmp_path)


def test_negative_losses_stay_linear_unless_they_explode() -> None:
    def shift(record: StepRecord) -> StepRecord:
        return dataclasses.replace(record, loss=record.loss - 4.0)

    def explode(record: StepRecord) -> StepRecord:
        return dataclasses.replace(record, loss=-1.0 if record.step < 30 else 1e9)

    assert _figure(build_view(baseline={"edit": shift})).axes[0].get_yscale() == "linear"
    assert _figure(build_view(baseline={"edit": explode})).axes[0].get_yscale() == "symlog"


@pytest.mark.parametrize("kind", ["no arms", "no records", "all nan", "zero norm"])
def test_nothing_to_draw_says_so(kind: str, tmp_path: Path) -> None:
    def nan(record: StepRecord) -> StepRecord:
        return dataclasses.replace(record, loss=math.nan, grad_norm=math.nan, finite_loss=False)

    def zero(record: StepRecord) -> StepRecord:
        return dataclasses.replace(record, grad_norm=0.0)

    view = without_arm(
        build_view(baseline={"edit": {"all nan": nan, "zero norm": zero}.get(kind, lambda r: r)}),
        LOWER,
    )
    if kind == "no arms":
        view = dataclasses.replace(view, arms={})
    if kind == "no records":
        view = with_baseline(view, steps=(), cooldown=(), validations=())
    figures.draw(view, VERDICT, tmp_path)
    norm = _figure(view).axes[1]
    assert [t.get_text() for t in norm.texts] == ["no finite values"]


def test_smooth_is_a_median_that_skips_non_finite_values() -> None:
    values = np.array([1.0, 9.0, 1.0, math.nan, 3.0, 2.0])
    smoothed = figures.smooth(values, 3)
    np.testing.assert_array_equal(smoothed, [5.0, 1.0, 5.0, math.nan, 2.5, 2.5])
    assert figures.smooth(np.array([]), 5).size == 0
    np.testing.assert_array_equal(figures.smooth(np.full(4, 2.0), 3), np.full(4, 2.0))


def test_a_step_that_the_scaler_skipped_is_ordinary() -> None:
    def skip(record: StepRecord) -> StepRecord:
        if record.step != 2:
            return dataclasses.replace(record, loss_scale=1024.0)
        return dataclasses.replace(
            record, loss_scale=2048.0, step_skipped=True, finite_grads=False, grad_norm=math.inf
        )

    view = build_view(baseline={"edit": skip})
    assert figures.non_finite_steps(view.baseline) == []
    view = build_view(baseline={"edit": lambda r: dataclasses.replace(skip(r), loss_scale=None)})
    assert figures.non_finite_steps(view.baseline) == [2]
    assert figures.non_finite_steps(None) == []


def test_importing_the_projections_loads_nothing_heavy() -> None:
    code = (
        "import sys, pilot.report.figures, pilot.report.terminal, pilot.tracking.project\n"
        "heavy = {'matplotlib', 'mlflow', 'torch', 'pandas', 'transformers'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
