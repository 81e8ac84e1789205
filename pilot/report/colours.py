"""One fixed look per kind of arm: the same colour in the figures and in the tracking store.

Colours are told apart with the common colour-vision deficiencies (blue against orange, never red
against green); dashes and brightness do the same in greyscale. Every look is a rule on the job, so
an arm looks the same in every pilot.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from pilot.arms.specs import CLIP, RATE, REPLICA
from pilot.folder import BASELINE, Job

Dashes = str | tuple[float, tuple[float, ...]]
VERDICT_COLOURS = {"GO": "#2e7d32", "NO-GO": "#d32f2f", "INCONCLUSIVE": "#f9a825"}

# Anchors of the rates: |log10(rate / the recipe's rate)| and the colour there.
_LOWER = ((0.0, "#0b2f66"), (0.477, "#1c6fc4"), (1.0, "#58b4e8"), (2.0, "#a9d9f2"))
_HIGHER = ((0.0, "#f5c242"), (0.477, "#e8800c"), (1.0, "#c8330e"), (2.0, "#7f0d17"))
# Dashes for distances up to 0.2, 0.75 (x3), 1.5 (x10) and beyond.
_DISTANCES = (0.2, 0.75, 1.5)
_LOWER_DASHES: tuple[Dashes, ...] = (
    (0, (9, 2)),
    (0, (6, 2)),
    (0, (3, 1.6)),
    (0, (1.6, 1.6)),
)
_HIGHER_DASHES: tuple[Dashes, ...] = (
    (0, (9, 2, 1.2, 2)),
    (0, (5, 1.6, 1.2, 1.6)),
    (0, (5, 1.6, 1.2, 1.6, 1.2, 1.6)),
    (0, (2.5, 1.6, 1.2, 1.6)),
)
_CLIPS = ("#641a86", "#b57cd0", "#8f5bb0")
_CLIP_DASHES: tuple[Dashes, ...] = (
    (0, (8, 1.6, 2.5, 1.6)),
    (0, (4, 1.2, 1.5, 1.2)),
    (0, (2, 1.2, 1, 1.2)),
)
_REPLICAS = ("#8a8a8a", "#b4b4b4", "#6a6a6a")
_REPLICA_DASHES: tuple[Dashes, ...] = ((0, (1, 1.4)), (0, (1, 2.6)), (0, (1, 4)))
# Added arms: green, wine, olive, pink, teal, brown, in neighbouring pairs of unlike brightness.
_ADDED = ("#1b7f5c", "#d678a8", "#7a2048", "#a5a026", "#17616b", "#c49a6c", "#8a5a1f")
_ADDED_DASHES: tuple[Dashes, ...] = (
    (0, (7, 1.5, 1, 1.5, 1, 1.5)),
    (0, (4, 1)),
    (0, (2, 1, 6, 1)),
    (0, (1, 1, 4, 2)),
)


@dataclass(frozen=True, kw_only=True)
class Style:
    """A colour (hex) and the dashes of matplotlib that tell the lines apart without colour."""

    colour: str
    dashes: Dashes


def arm_style(job: Job) -> Style:
    """The look of an arm: by what it changes, so that it is the same in every pilot.

    Baseline black and solid; clipping purple; lower rates blue and dashed, lighter with the
    distance; higher rates orange to red and dash-dotted; replicas grey and dotted. Anything else
    goes by its place in the list (``order``).
    """
    if job.arm == BASELINE:
        return Style(colour="#000000", dashes="-")
    if job.role == REPLICA:
        number = _trailing_number(job.arm) - 1
        dashes = _REPLICA_DASHES[number % len(_REPLICA_DASHES)]
        return Style(colour=_REPLICAS[number % len(_REPLICAS)], dashes=dashes)
    if job.variable == CLIP:
        if job.value.strip() in ("null", "None", "~", ""):
            return Style(colour=_CLIPS[0], dashes=_CLIP_DASHES[0])
        dashes = _CLIP_DASHES[1 + job.order % 2]
        return Style(colour=_CLIPS[(job.order - 2) % len(_CLIPS)], dashes=dashes)
    scale = _rate_scale(job) if job.variable == RATE else None
    return _rate_style(scale) if scale is not None else _added_style(job.order)


def arm_title(job: Job) -> str:
    """The arm's name for people; folders of old pilots have none, there it is the folder's."""
    return job.title or job.arm.replace("_", " ")


def _trailing_number(text: str) -> int:
    found = re.search(r"(\d+)$", text)
    return int(found[1]) if found else 1


def _rate_scale(job: Job) -> float | None:
    """The arm's rate over the recipe's, or None where either is not a positive number."""
    try:
        rate, recipe = float(job.value), float(job.baseline_value)
    except ValueError:
        return None
    if not (math.isfinite(rate) and math.isfinite(recipe) and rate > 0 and recipe > 0):
        return None
    return rate / recipe


def _rate_style(scale: float) -> Style:
    distance = abs(math.log10(scale))
    index = sum(distance > border for border in _DISTANCES)
    if scale < 1:
        return Style(colour=_mix(_LOWER, distance), dashes=_LOWER_DASHES[index])
    return Style(colour=_mix(_HIGHER, distance), dashes=_HIGHER_DASHES[index])


def _added_style(order: int) -> Style:
    dashes = _ADDED_DASHES[order % len(_ADDED_DASHES)]
    return Style(colour=_ADDED[order % len(_ADDED)], dashes=dashes)


def _mix(anchors: tuple[tuple[float, str], ...], distance: float) -> str:
    """The colour at a distance: straight lines between the anchors, constant beyond the last."""
    for (near, low), (far, high) in zip(anchors, anchors[1:], strict=False):
        if distance <= far:
            share = round((distance - near) / (far - near), 2)
            parts = zip(_rgb(low), _rgb(high), strict=True)
            return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in parts)
    return anchors[-1][1]


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
