from __future__ import annotations

import itertools
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pilot.report import figures
from pilot.report.side import spread
from tests.factories import build_view
from tests.report.parts import add_arm, arm_row, effect


def test_names_stay_where_they_want_to_be_when_there_is_room() -> None:
    assert spread([5.0, 3.0, 1.0], [1.0, 1.0, 1.0], 0.0, 6.0) == [5.0, 3.0, 1.0]
    assert spread([], [], 0.0, 1.0) == []


def test_names_at_one_height_spread_around_it() -> None:
    assert spread([3.0, 3.0, 3.0], [1.0, 1.0, 1.0], 0.0, 6.0) == [4.0, 3.0, 2.0]
    assert spread([3.0, 3.0], [1.0, 3.0], 0.0, 6.0) == [4.0, 2.0]


def test_names_stay_between_the_borders() -> None:
    assert spread([9.0, 9.0], [1.0, 1.0], 0.0, 6.0) == [5.5, 4.5]
    assert spread([-9.0, -9.0], [1.0, 1.0], 0.0, 6.0) == [1.5, 0.5]


def test_too_many_names_begin_at_the_top_and_go_below_the_border() -> None:
    assert spread([1.0] * 4, [1.0] * 4, 0.0, 2.0) == [1.5, 0.5, -0.5, -1.5]


@pytest.mark.parametrize("num_arms", [1, 7, 15])
def test_no_name_covers_another_or_leaves_the_figure(num_arms: int) -> None:
    view, rows = build_view(), [arm_row("lr_x1_3", effect=effect(word="no difference"))]
    words = ("worse", "larger loss, noise unknown", "no difference")
    for number in range(1, num_arms):
        name = f"gradient_accumulation_steps_{number}" if number % 4 == 0 else f"beta2_{number}"
        final = 2.0 + 0.001 * number
        view = add_arm(view, name, variable="optim.x", value=str(number), final=final)
        rows.append(arm_row(name, effect=effect(word=words[number % 3])))
    figure: Any = figures._figure(view, {"verdict": "GO", "arms": rows})
    renderer: Any = FigureCanvasAgg(figure).get_renderer()
    names = [
        text for text in figure.texts if text.get_text() == "baseline" or ":" in text.get_text()
    ]
    boxes = [text.get_window_extent(renderer) for text in names]
    assert len(boxes) == 1 + num_arms
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    assert all(box.y0 > 0 and box.x1 < figure.bbox.x1 for box in boxes)
    axes_right = max(axes.bbox.x1 for axes in figure.axes)
    assert all(box.x0 > axes_right for box in boxes)
