"""What is drawn of an arm: its series, validations, how it ended, what the legend says of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pilot.arms.specs import REPLICA
from pilot.folder import BASELINE
from pilot.records import Outcome, StepRecord, ValidationRecord
from pilot.report import arm_text
from pilot.report.colours import Style, arm_style, arm_title
from pilot.report.words import one_line
from pilot.view import ArmView, PilotView

Series = npt.NDArray[np.float64]

LARGEST = 1e100  # what is beyond has no place on an axis, whose arithmetic would overflow
COLUMNS = ("loss", "grad_norm", "clip_coef", "relative_update", "learning_rate")
DIVERGED, DECIDED, LOST = "diverged", "decided early", "lost"
_ENDINGS = {
    Outcome.STOPPED: DIVERGED,
    Outcome.DECIDED: DECIDED,
    Outcome.EXCEPTION: LOST,
    Outcome.OUT_OF_MEMORY: LOST,
    arm_text.LOST: LOST,
}
_MAX_TITLE_CHARS = 40


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One drawn arm. ``series`` are the raw columns and ``smooth`` their medians, by name.

    Values that are not finite are NaN, larger ones than 1e100 are 1e100. A forked arm begins at
    its fork: before it is the baseline. ``ending`` says how it ended if before its end.
    """

    name: str
    is_replica: bool
    style: Style
    text: str
    ending: str
    steps: Series
    series: Mapping[str, Series]
    smooth: Mapping[str, Series]
    validations: tuple[ValidationRecord, ...]

    @property
    def is_baseline(self) -> bool:
        """Whether it is the recipe unchanged."""
        return self.name == BASELINE


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """All that is drawn: the curves in the order of the legend, and the arms that are only named.

    ``width`` is the number of steps of the running median.
    """

    curves: tuple[Curve, ...]
    only_named: tuple[str, ...]
    width: int


def drawing(view: PilotView, verdict: Mapping[str, Any]) -> Drawing:
    """What to draw of a pilot; arms that are identical or have no own step are only named."""
    arms = sorted(view.arms.values(), key=lambda a: (a.job.arm != BASELINE, a.job.order, a.job.arm))
    longest = max((len(arm.steps) + len(arm.cooldown) for arm in arms), default=0)
    width = min(15, max(1, longest // 12) | 1)
    rows = {str(row.get("name")): row for row in verdict.get("arms") or ()}
    curves, only_named = [], []
    for arm in arms:
        row = rows.get(arm.job.arm) or {"name": arm.job.arm, "status": _status(arm)}
        row = {"num_steps": len(arm.steps), **row}
        text = _text(arm, row, view.plan.start_step)
        curve = _curve(arm, width, text, _ENDINGS.get(str(row.get("status")), ""))
        if len(curve.steps) and row.get("status") != Outcome.IDENTICAL:
            curves.append(curve)
        else:
            only_named.append(text)
    return Drawing(curves=tuple(curves), only_named=tuple(only_named), width=width)


def _status(arm: ArmView) -> str:
    if arm.outcome is not None:
        return arm.outcome.status
    return arm.absence.get("status") or (arm_text.LOST if arm.num_attempts else arm_text.NOT_RUN)


def _text(arm: ArmView, row: Mapping[str, Any], start_step: int) -> str:
    """The legend's text, for example ``lr x1/10: worse, ended at 58``."""
    name = one_line(arm_title(arm.job), _MAX_TITLE_CHARS)
    is_whole = row.get("status") == Outcome.COMPLETED
    if is_whole and (arm.job.arm == BASELINE or not arm_text.word(row)):
        return name
    return f"{name}: {arm_text.result(row, start_step)}"


def _curve(arm: ArmView, width: int, text: str, ending: str) -> Curve:
    records = (*arm.steps, *arm.cooldown)
    fork = -1 if arm.job.fork_step is None else arm.job.fork_step
    steps = column(records, "step")
    # With own steps, the step of the fork too: there the line leaves the baseline's.
    own = (steps >= fork) & bool((steps > fork).any())
    series = {name: column(records, name) for name in COLUMNS}
    finite = [v for v in arm.validations if v.primary and math.isfinite(v.loss)]
    return Curve(
        name=arm.job.arm,
        is_replica=arm.job.role == REPLICA,
        style=arm_style(arm.job),
        text=text,
        ending=ending,
        steps=steps[own],
        series={name: values[own] for name, values in series.items()},
        smooth={name: smooth(values, width)[own] for name, values in series.items()},
        validations=tuple(v for v in finite if v.step > fork),
    )


def column(records: Sequence[StepRecord], name: str) -> Series:
    """One field of the records; NaN where it is not finite, at most 1e100."""
    values = np.array([getattr(record, name) for record in records], dtype=np.float64)
    values[~np.isfinite(values)] = np.nan
    return np.clip(values, -LARGEST, LARGEST)


def smooth(values: Series, width: int) -> Series:
    """Centred running median over ``width`` points; the non-finite are left out, and stay NaN.

    A median, because one spike must neither vanish from the raw curve nor bend the smooth one.
    """
    half, smoothed = width // 2, np.full(len(values), np.nan)
    for index in np.flatnonzero(np.isfinite(values)):
        window = values[max(0, index - half) : index + half + 1]
        smoothed[index] = np.median(window[np.isfinite(window)])
    return smoothed


def non_finite_steps(arm: ArmView | None) -> list[int]:
    """The steps, cool-down included, whose loss, gradients or weights were not finite.

    A step with a non-finite gradient that the fp16 loss scaler skipped is ordinary and not listed.
    """
    if arm is None:
        return []
    return [r.step for r in (*arm.steps, *arm.cooldown) if not _is_finite(r)]


def _is_finite(record: StepRecord) -> bool:
    grads = record.finite_grads and math.isfinite(record.grad_norm)
    skipped = record.step_skipped and record.loss_scale is not None
    loss = record.finite_loss and math.isfinite(record.loss)
    return loss and record.finite_params and (grads or skipped)
