"""The curves and numbers of one arm as metrics of its run. Pure.

Only finite numbers become metrics: a store keeps inf as 1.8e308 and a page leaves out a metric that
ends in NaN. Non-finite steps are counted instead; the full truth is in the records, which are sent
as files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pilot.folder import BASELINE
from pilot.records import Resource, StepRecord
from pilot.report.curves import non_finite_steps
from pilot.tracking.names import free_name
from pilot.view import ArmView, PilotView

MAX_METRIC_NAMES = 29  # a run's page stays readable and quick below thirty charts
_STEP_SERIES = {
    "train/loss": "loss",
    "train/grad_norm": "grad_norm",
    "train/clip_coef": "clip_coef",
    "train/relative_update": "relative_update",
    "train/learning_rate": "learning_rate",
    "train/loss_scale": "loss_scale",
}
_COOLDOWN, _SPEED = "train/cooldown_loss", "train/tokens_per_sec"
_DIFFERENCE = "pilot/loss_difference"
_NUM_OTHER_SERIES = 3
_NUM_ARM_SCALARS = 5


class Point(NamedTuple):
    """One value of a metric at a step, ``secs`` after the start of the run."""

    name: str
    step: int
    value: float
    secs: float


def arm_points(view: PilotView, arm: ArmView) -> list[Point]:
    """The curves of an arm, finite values only, series by series in the order of their steps.

    A forked or identical arm has the whole joined curve: what it shares with the baseline too.
    """
    resources = _step_resources(view, arm)
    clock = _clock(resources)
    values = [
        *_step_values(arm.steps),
        *((_COOLDOWN, record.step, record.loss) for record in arm.cooldown),
        *_differences(view.baseline, arm),
        *_validation_values(view, arm),
        *(
            (_SPEED, record.step, resources[record.step].tokens_per_sec)
            for record in arm.steps
            if record.step in resources
        ),
    ]
    points = [
        Point(name, step, rounded(value), clock(step))
        for name, step, value in values
        if value is not None and math.isfinite(value)
    ]
    return sorted(points)


_Value = tuple[str, int, float | None]


def _step_values(records: Iterable[StepRecord]) -> Iterator[_Value]:
    for record in records:
        for name, attribute in _STEP_SERIES.items():
            yield name, record.step, getattr(record, attribute)


def _differences(baseline: ArmView | None, arm: ArmView) -> Iterator[_Value]:
    """Loss minus the baseline's on the same rows, step by step: the noise of the rows cancels."""
    if baseline is None or arm.job.arm == BASELINE:
        return
    losses = {record.step: record.loss for record in baseline.steps}
    for record in arm.steps:
        if record.step in losses:
            yield _DIFFERENCE, record.step, record.loss - losses[record.step]


def _validation_values(view: PilotView, arm: ArmView) -> Iterator[_Value]:
    """One value a place and set: a later attempt repeats places, its record counts."""
    names = _validation_names(view)
    for record in {(v.at, v.name): v for v in arm.validations}.values():
        if record.name in names:
            yield names[record.name], record.step, record.loss


def _validation_names(view: PilotView) -> dict[str, str]:
    """Metric name of each validation set, the primary first, as many as there is room for."""
    names: dict[str, str] = {}
    room = MAX_METRIC_NAMES - len(_STEP_SERIES) - _NUM_OTHER_SERIES - _NUM_ARM_SCALARS
    records = [record for arm in view.arms.values() for record in arm.validations]
    for record in sorted(records, key=lambda v: not v.primary):
        if record.name not in names and len(names) < room:
            clean_name = record.name.replace("/", "_")
            names[record.name] = free_name(f"val/{clean_name}", names.values())
    return names


def _step_resources(view: PilotView, arm: ArmView) -> dict[int, Resource]:
    """What each step took: its own, and the baseline's for the steps that an arm shares with it."""
    baseline = view.baseline.resources if view.baseline else ()
    return {
        record.step: record
        for record in (*baseline, *arm.resources)
        if record.kind == "step" and math.isfinite(record.secs)
    }


def _clock(resources: Mapping[int, Resource]) -> Callable[[int], float]:
    """Seconds since the start at a step, from the recorded step times (1 ms a step without)."""
    at = np.array(sorted(resources), dtype=np.int64)
    secs = np.cumsum([resources[step].secs for step in at])

    def clock(step: int) -> float:
        index = int(np.searchsorted(at, step, side="right"))
        return step * 1e-3 + (float(secs[index - 1]) if index else 0.0)

    return clock


def arm_scalars(arm: ArmView, row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one arm, from its row of the verdict: finite, six digits; each is a chart.

    ``pilot/difference`` is what the word rests on: of the final validation, or of the step losses
    so far for an arm that ended early.
    """
    difference, effect = row.get("difference") or {}, row.get("effect") or {}
    clipped = [record.clip_coef < 1.0 for record in arm.steps]
    compared = effect.get("value")
    return finite(
        {
            "pilot/difference": difference.get("value") if compared is None else compared,
            "pilot/final_loss": row.get("final_loss"),
            "pilot/nonfinite_steps": len(non_finite_steps(arm)),
            "pilot/own_steps": arm.num_own_steps,
            "train/clipped_frac": sum(clipped) / len(clipped) if clipped else None,
        }
    )


def arm_secs(arm: ArmView) -> float:
    """Measured seconds of one arm's own work."""
    return float(sum(r.secs for r in arm.resources if 0 <= r.secs < 1e9))


def finite(values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among ``values``, at six significant digits."""
    return {
        name: rounded(value)
        for name, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }


def rounded(value: float) -> float:
    """Six significant digits: a page shows all digits of a number, the records keep them."""
    return float(f"{value:.6g}")
