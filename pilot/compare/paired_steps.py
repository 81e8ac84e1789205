"""The paired difference of the step losses of two runs at the peak rate, with its t interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pilot.compare.noise import NoiseFloor, sd_of_steps
from pilot.compare.paired import half_width, peak_segment
from pilot.plan import Plan
from pilot.records import StepRecord

BLOCK_STEPS, MIN_BLOCKS, RECENT_BLOCKS = 8, 4, 2


@dataclass(frozen=True, kw_only=True)
class StepInterval:
    """The mean paired difference of the step losses (positive: the arm's are larger) so far.

    ``value`` plus and minus ``half_width`` is the interval, ``num_blocks`` its number of block
    means, ``recent`` the mean of the last two of them, ``outlook`` the straight line through them
    at the end of the peak; ``reference_loss`` is the mean of the baseline's losses at the same
    steps. ``same_rate``: every step had the baseline's learning rate. ``noise_known``: the
    interval includes the run-to-run noise of these steps.
    """

    value: float
    half_width: float
    reference_loss: float
    recent: float
    outlook: float
    num_blocks: int
    same_rate: bool
    noise_known: bool


def step_interval(
    plan: Plan,
    baseline_steps: Sequence[StepRecord],
    arm_steps: Sequence[StepRecord],
    *,
    at_step: int,
    first_step: int,
    error_rate: float,
    floor: NoiseFloor,
) -> StepInterval | None:
    """The paired difference over the peak, from ``first_step``, which may differ, to ``at_step``.

    A t interval of the means of blocks of ``BLOCK_STEPS`` steps, which weakens their
    autocorrelation, widened by the run-to-run noise of the mean over the same steps where ``floor``
    knows it. Leading differences of exactly 0 are left out, unless all are: there the arm had not
    begun to differ. A loss that is not finite never enters. None with fewer than ``MIN_BLOCKS``
    blocks, or when a step since ``first_step`` is missing or had other rows.
    """
    pairs = _pairs(plan, baseline_steps, arm_steps, at_step, first_step)
    change = np.array([arm.loss - base.loss for base, arm in pairs])
    if change.any():
        begin = int(np.flatnonzero(change)[0])
        pairs, change = pairs[begin:], change[begin:]
    num_blocks = len(change) // BLOCK_STEPS
    if num_blocks < MIN_BLOCKS:
        return None
    pairs = pairs[: num_blocks * BLOCK_STEPS]
    noise_sd = sd_of_steps(floor, pairs[0][0].step, pairs[-1][0].step)
    blocks = change[: num_blocks * BLOCK_STEPS].reshape(num_blocks, BLOCK_STEPS).mean(axis=1)
    with np.errstate(over="ignore"):  # differences of 1e200 give an infinite interval
        se = float(blocks.std(ddof=1)) / math.sqrt(num_blocks)
    return StepInterval(
        value=float(blocks.mean()),
        half_width=half_width(
            se, num_blocks - 1, error_rate, noise_sd=noise_sd or 0.0, num_runs=floor.num_runs
        ),
        reference_loss=abs(float(np.mean([base.loss for base, _ in pairs]))),
        recent=float(blocks[-RECENT_BLOCKS:].mean()),
        outlook=_line_at(blocks, _last_block(plan, pairs[0][0].step)),
        num_blocks=num_blocks,
        same_rate=all(base.learning_rate == arm.learning_rate for base, arm in pairs),
        noise_known=noise_sd is not None,
    )


def _line_at(blocks: npt.NDArray[np.float64], place: float) -> float:
    """The least-squares line through values at 0, 1, 2, ..., at ``place``."""
    middle = (len(blocks) - 1) / 2
    along = np.arange(len(blocks)) - middle
    slope = float(along @ blocks) / float(along @ along)
    return float(blocks.mean()) + slope * (place - middle)


def _last_block(plan: Plan, first_step: int) -> float:
    """The place of the peak's last block, counted from the block at ``first_step`` as 0."""
    peak = peak_segment(plan)
    return (peak.last_step - first_step + 1) / BLOCK_STEPS - 1 if peak else 0.0


def _pairs(
    plan: Plan,
    baseline_steps: Sequence[StepRecord],
    arm_steps: Sequence[StepRecord],
    at_step: int,
    first_step: int,
) -> list[tuple[StepRecord, StepRecord]]:
    """Finite pairs of the peak from ``first_step`` on; none when rows differ or are gone."""
    peak = peak_segment(plan)
    if peak is None:
        return []
    first, last = max(peak.first_step, first_step), min(at_step, peak.last_step)
    base = {record.step: record for record in baseline_steps}
    arm = {record.step: record for record in arm_steps}
    pairs = []
    for step in range(first, last + 1):
        one, other = base.get(step), arm.get(step)
        if one is None or other is None or one.row_hash != other.row_hash:
            return []
        if math.isfinite(one.loss) and math.isfinite(other.loss):
            pairs.append((one, other))
    return pairs
