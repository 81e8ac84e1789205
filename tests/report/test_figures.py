from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pilot.records import StepRecord
from pilot.report import figures
from pilot.view import PilotView
from tests.factories import LOWER, build_view, with_baseline, without_arm
from tests.report.parts import add_arm, arm_row, several_arms

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
    assert path == tmp_path / "figures" / "pilot.png"
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


def test_panels_segments_and_limit_are_there() -> None:
    figure = _figure(build_view())
    loss, norm, clip, update, rate = figure.axes
    assert {t.get_text() for t in loss.texts} == {"warm-up", "peak", "cool-down"}
    assert [len(axes.patches) for axes in figure.axes] == [3] * 5  # each segment shaded
    markers = [(m.get_xdata()[0], m.get_marker()) for m in loss.lines if m.get_marker() != "None"]
    assert markers[:4] == [(0, "o"), (12, "^"), (48, "s"), (56, "D")]
    assert (norm.get_yscale(), update.get_yscale(), rate.get_yscale()) == ("log", "log", "linear")
    assert [t.get_text() for t in norm.texts] == ["clipped above 1"]
    assert len(rate.lines[0].get_xdata()) == 56
    assert loss.get_xlim()[0] < 0 and loss.get_xlim()[1] > 56
    (key,) = figure.legends
    assert [t.get_text() for t in key.get_texts()] == [
        "each step", "median of 5", "validation before step 1", "at warm-up end", "at peak end",
        "after cool-down",
    ]  # fmt: skip


def test_all_arms_are_drawn_in_their_looks_and_named_beside() -> None:
    rows = [arm_row("lr_x1_10", status="decided", num_steps=20)]
    figure = _figure(several_arms(), {"verdict": "GO", "arms": rows})
    lines = [line for line in figure.axes[0].lines if line.get_linewidth() > 1.2]
    drawn = [line.get_color() for line in lines if len(line.get_xdata()) > 1]
    assert drawn == ["#000000", "#1c6fc4", "#58b4e8", "#e8800c", "#8a8a8a"]
    texts = [t.get_text() for t in figure.texts]
    for text in ("lr x1/10: worse, ended at 20", "clip off: identical", "replica 2: not run"):
        assert text in texts
    endings = [(m.get_xdata()[0], m.get_marker()) for m in figure.axes[0].lines[-2:]]
    assert endings == [(20, "o"), (30, "X")]
    assert "decided early" in [t.get_text() for t in figure.legends[0].get_texts()]


def _blow_up_from_20(record: StepRecord) -> StepRecord:
    if record.step < 20:
        return record
    size = 10.0 ** (record.step - 19)
    return dataclasses.replace(record, loss=size, grad_norm=size)


def test_an_arm_that_diverges_flattens_nobody() -> None:
    view = add_arm(build_view(), "lr_x3", last_step=30, edit=_blow_up_from_20)
    calm = _figure(build_view()).axes
    loss, norm = _figure(view).axes[:2]
    assert loss.get_yscale() == "linear"
    assert loss.get_ylim()[1] < 2 * calm[0].get_ylim()[1]
    assert norm.get_ylim()[1] < 10 * calm[1].get_ylim()[1]
    marker = loss.lines[-1]  # its end lies above and is marked at the border
    assert (marker.get_marker(), marker.get_xdata()[0]) == ("X", 30)
    assert marker.get_ydata()[0] == loss.get_ylim()[1]


def test_a_baseline_that_diverges_leaves_the_arms_readable() -> None:
    view = build_view(baseline={"last_step": 30, "edit": _blow_up_from_20})
    loss = _figure(view).axes[0]
    assert loss.get_yscale() == "linear" and loss.get_ylim()[1] < 6
    alone = _figure(without_arm(view, LOWER)).axes[0]
    assert alone.get_yscale() == "log" and alone.get_ylim()[1] >= 1e10


def test_rates_far_apart_get_a_log_axis() -> None:
    view = add_arm(build_view(), "low", learning_rate=1e-5)
    axes = _figure(view).axes[4]
    assert axes.get_yscale() == "log"
    low, high = axes.get_ylim()
    assert low < 1e-5 and 3e-3 < high < 6e-3


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


def test_importing_the_projections_loads_nothing_heavy() -> None:
    code = (
        "import sys, pilot.report.figures, pilot.report.terminal, pilot.tracking.project\n"
        "heavy = {'matplotlib', 'mlflow', 'torch', 'pandas', 'transformers'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
