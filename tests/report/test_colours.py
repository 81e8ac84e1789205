from __future__ import annotations

import itertools

import numpy as np
import pytest

from pilot.report.colours import Style, arm_style, arm_title
from tests.report.parts import CLIP, RATE, SEED, make_job

# Linear RGB as a person without red (protan) or green (deutan) cones sees it: Vienot, Brettel and
# Mollon, Digital video colourmaps for checking the legibility of displays by dichromats, 1999.
PROTAN = [[0.1121, 0.8853, -0.0005], [0.1127, 0.8897, -0.0001], [0.0045, 0.0001, 1.0019]]
DEUTAN = [[0.2927, 0.7054, -0.0003], [0.2934, 0.7089, 0.0000], [-0.0210, 0.0256, 1.0006]]


def rate(value: float, order: int = 1) -> Style:
    return arm_style(make_job(value=f"{value:g}", baseline_value="0.003", order=order))


def default_styles() -> dict[str, Style]:
    replicas = {
        f"replica {n}": arm_style(make_job(f"replica_{n}", role="replica", variable=SEED))
        for n in (1, 2)
    }
    return {
        "baseline": arm_style(make_job("baseline")),
        "clip off": arm_style(make_job("clip_off", variable=CLIP, value="null", order=2)),
        "lr x1/10": rate(0.0003),
        "lr x1/3": rate(0.001),
        "lr x3": rate(0.009),
        **replicas,
    }


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lightness(colour: str) -> float:
    """CIE L*, 0 to 100."""
    y = float(linear(colour) @ [0.2126, 0.7152, 0.0722])
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(np.clip(np.array(to_xyz) @ rgb / [0.9505, 1.0, 1.089], 1e-6, None))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_the_default_arms_have_their_fixed_colours() -> None:
    found = {name: style.colour for name, style in default_styles().items()}
    assert found == {
        "baseline": "#000000",
        "clip off": "#641a86",
        "lr x1/10": "#58b4e8",
        "lr x1/3": "#1c6fc4",
        "lr x3": "#e8800c",
        "replica 1": "#8a8a8a",
        "replica 2": "#b4b4b4",
    }
    assert default_styles()["baseline"].dashes == "-"


def test_dashes_alone_tell_the_default_arms_apart() -> None:
    dashes = [style.dashes for style in default_styles().values()]
    assert len(set(dashes)) == len(dashes) == 7


@pytest.mark.parametrize("cones", [PROTAN, DEUTAN, np.eye(3)])
def test_colours_differ_for_everybody(cones: list[list[float]]) -> None:
    seen = {n: lab(np.array(cones) @ linear(s.colour)) for n, s in default_styles().items()}
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 14, (one, other)


def test_lines_are_dark_enough_for_white_paper_and_a_lower_rate_is_lighter() -> None:
    styles = default_styles()
    assert all(lightness(style.colour) < 75 for style in styles.values())
    assert lightness(styles["lr x1/10"].colour) > lightness(styles["lr x1/3"].colour) + 15


@pytest.mark.parametrize("scale", [0.9, 0.5, 1 / 3, 0.1, 0.01, 1e-6])
def test_lower_rates_are_blue_and_higher_ones_orange_to_red(scale: float) -> None:
    lower, higher = linear(rate(0.003 * scale).colour), linear(rate(0.003 / scale).colour)
    assert lower[2] > 2 * lower[0]
    assert higher[0] > 3 * higher[2]
    assert rate(0.003 * scale).dashes != rate(0.003 / scale).dashes


def test_a_rate_looks_the_same_wherever_it_stands() -> None:
    assert rate(0.009, order=1) == rate(0.009, order=7)
    assert rate(1e-12) == rate(1e-13)  # beyond the last anchor
    assert arm_style(make_job(value="0.03", baseline_value="0.01")) == rate(0.009)


@pytest.mark.parametrize("value", ["", "null", "nan", "inf", "0", "-1", "${x}"])
def test_a_rate_that_is_no_number_goes_by_its_place(value: str) -> None:
    added = arm_style(make_job(variable="optim.beta2", value="0.95", order=3))
    assert arm_style(make_job(value=value, order=3)) == added
    assert arm_style(make_job(value="0.009", baseline_value=value, order=3)) == added


def test_added_arms_repeat_late_and_clipping_stays_purple() -> None:
    added = {arm_style(make_job(variable="optim.beta2", order=n)) for n in range(1, 29)}
    assert len(added) == 28
    for order, value in ((2, "1.0"), (3, "0.1"), (4, "10")):
        red, green, blue = linear(
            arm_style(make_job(variable=CLIP, value=value, order=order)).colour
        )
        assert blue > red > green
    off = arm_style(make_job(variable=CLIP, value="null", order=9))
    assert off == default_styles()["clip off"]


def test_old_folders_have_no_titles() -> None:
    assert arm_title(make_job("lr_x1_3", title="", variable=RATE)) == "lr x1 3"
    assert arm_title(make_job(title="lr x3")) == "lr x3"
