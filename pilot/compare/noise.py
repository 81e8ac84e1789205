"""The noise floor: how much two runs of the same recipe differ by themselves.

It comes from replicas, arms that change only ``pilot.seed``, or from a floor that an earlier pilot
of the same training stored. One replica is no floor: an arm without any effect exceeds the
difference of two runs half of the time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pilot.arms.specs import REPLICA
from pilot.compare.paired import mean_loss, peak_segment
from pilot.records import Outcome, StepRecord, ValidationRecord
from pilot.view import ArmView, PilotView

MIN_RUNS = 3
# Fewest shared steps whose mean is a run's training loss: one block of the sequential test.
_MIN_STEPS = 8


@dataclass(frozen=True, kw_only=True)
class NoiseFloor:
    """Run-to-run standard deviations, in nats per token (ddof 1); None: unknown.

    ``sd_validation`` is that of the final validation loss on the same examples, ``sd_steps`` that
    of the mean training loss over the peak steps that all runs share. ``num_runs`` counts the
    baseline and its usable replicas. ``source``: ``replicas``, ``stored`` or ``none``.
    ``seed_matters`` is False when another seed was shown to change nothing: then 0 is a measured
    fact. ``reason`` says why there is no floor. For ``sd_of_steps``: ``step_losses`` are the losses
    of all runs at each peak step that they share, ``num_peak_steps`` is the length of the peak that
    a stored ``sd_steps`` stands for (0: that of any stretch).
    """

    sd_validation: float | None = None
    sd_steps: float | None = None
    num_runs: int = 0
    source: str = "none"
    seed_matters: bool | None = None
    reason: str = ""
    step_losses: Mapping[int, tuple[float, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )
    num_peak_steps: int = field(default=0, repr=False, compare=False)

    @property
    def sentence(self) -> str:
        """One line for people."""
        if self.source == "none":
            return f"noise unknown: {self.reason or 'no replica was run'}"
        where = ", stored by an earlier pilot" if self.source == "stored" else ""
        if self.seed_matters is False:
            return (
                f"the seed changes nothing in this recipe ({self.num_runs} runs are the same{where}"
                "): no run-to-run noise for this order of the data"
            )
        return (
            f"{self.num_runs} runs that differ only by the seed{where}: sd of the final validation "
            f"loss {_sd_text(self.sd_validation)}, of the loss at the peak "
            f"{_sd_text(self.sd_steps)}"
        )


UNKNOWN = NoiseFloor()


def noise_floor(view: PilotView) -> NoiseFloor:
    """The noise floor of a pilot: from its replicas, else the stored one, else none. Pure.

    A replica counts when it is identical to the baseline, or completed with a finite final
    validation on the baseline's examples; a NaN or inf never enters. At least ``MIN_RUNS`` runs
    make a floor. Replicas that are all identical prove, one is enough, that the seed changes
    nothing. A replica that became non-finite proves that it matters, by more than any standard
    deviation says: then there is no floor, neither from the others nor a stored one.
    """
    measured = _from_replicas(view)
    if measured.source != "none" or measured.seed_matters:
        return measured
    stored, peak = stored_floor(view.stored_noise), peak_segment(view.plan)
    if stored is None:
        return measured
    return replace(stored, num_peak_steps=peak.num_steps if peak else 0)


def sd_of_steps(floor: NoiseFloor, first_step: int, last_step: int) -> float | None:
    """The run-to-run sd of the mean training loss over ``first_step`` to ``last_step``, or None.

    From the replicas' own losses at these steps, when the runs share at least 8 of them. A stored
    floor knows only the sd over the whole peak: it is multiplied by sqrt(n_peak / n_steps), the
    value for noise that is independent from step to step. That is the larger of the two extremes;
    noise that is one offset per run would keep its sd.
    """
    if floor.step_losses:
        inside = [v for step, v in floor.step_losses.items() if first_step <= step <= last_step]
        return _sd_of_means(inside)
    if floor.sd_steps is None:
        return None
    num_steps = max(1, last_step - first_step + 1)
    return floor.sd_steps * math.sqrt(max(1.0, floor.num_peak_steps / num_steps))


def stored_floor(stored: Mapping[str, Any]) -> NoiseFloor | None:
    """The floor that an earlier pilot stored (``stored_values``), or None where it is not valid.

    Valid: ``num_runs`` and finite ``sd_validation`` >= 0 (both deviations are 0 where the seed
    changes nothing, else ``num_runs`` is at least ``MIN_RUNS``); ``sd_steps`` may be missing.
    """
    matters, num_runs = stored.get("seed_matters"), stored.get("num_runs")
    validation, steps = _sd(stored, "sd_validation"), _sd(stored, "sd_steps")
    if not isinstance(num_runs, int) or isinstance(num_runs, bool):
        return None
    if not isinstance(matters, bool) or validation is None:
        return None
    if num_runs < (MIN_RUNS if matters else 2) or (not matters and validation + (steps or 0) > 0):
        return None
    return NoiseFloor(
        sd_validation=validation,
        sd_steps=steps if matters else 0.0,
        num_runs=num_runs,
        source="stored",
        seed_matters=matters,
    )


def stored_values(floor: NoiseFloor) -> dict[str, Any]:
    """The plain values that ``stored_floor`` reads back, for a file."""
    return {
        "sd_validation": floor.sd_validation,
        "sd_steps": floor.sd_steps,
        "num_runs": floor.num_runs,
        "seed_matters": floor.seed_matters,
    }


def _sd_text(sd: float | None) -> str:
    return "unknown" if sd is None else f"{sd:.3g}"


def _sd(stored: Mapping[str, Any], key: str) -> float | None:
    value = stored.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _from_replicas(view: PilotView) -> NoiseFloor:
    """The floor of the pilot's own replicas; ``source`` none, with the reason, when it is none."""
    replicas = [view.arms[name] for name in sorted(view.arms)]
    replicas = [arm for arm in replicas if arm.job.role == REPLICA]
    final = _final(view, view.baseline)
    if not replicas:
        return UNKNOWN
    if view.baseline is None or final is None:
        return NoiseFloor(reason="the baseline has no finite final validation")
    same = [arm for arm in replicas if _status(arm) == Outcome.IDENTICAL]
    others = [arm for arm in replicas if _usable(view, arm, final)]
    num_runs = 1 + len(same) + len(others)
    if broken := [arm.job.title or arm.job.arm for arm in replicas if _diverged(view, arm)]:
        reason = f"{', '.join(broken)} became non-finite: no standard deviation describes that"
        return NoiseFloor(num_runs=num_runs, seed_matters=True, reason=reason)
    if num_runs >= 2 and all(_all_equal(view, final, arm) for arm in others):
        return NoiseFloor(
            sd_validation=0.0,
            sd_steps=0.0,
            num_runs=num_runs,
            source="replicas",
            seed_matters=False,
        )
    if num_runs < MIN_RUNS:
        reason = f"{num_runs} of the {MIN_RUNS} runs needed have a finite final validation"
        return NoiseFloor(num_runs=num_runs, reason=reason)
    losses = [mean_loss(final)] * (1 + len(same))
    losses += [mean_loss(record) for arm in others if (record := _final(view, arm))]
    runs = [view.baseline.steps] * (1 + len(same)) + [arm.steps for arm in others]
    step_losses = _step_losses(view, runs)
    return NoiseFloor(
        sd_validation=_sample_sd(losses),
        sd_steps=_sd_of_means(list(step_losses.values())),
        num_runs=num_runs,
        source="replicas",
        seed_matters=True,
        step_losses=step_losses,
    )


def _status(arm: ArmView) -> str:
    return arm.outcome.status if arm.outcome else ""


def _diverged(view: PilotView, arm: ArmView) -> bool:
    """Stopped at a non-finite loss, or completed with a final validation that is not finite."""
    record = arm.validation(view.plan.final_validation)
    spoilt = record is not None and not math.isfinite(mean_loss(record))
    return _status(arm) == Outcome.STOPPED or (_status(arm) == Outcome.COMPLETED and spoilt)


def _usable(view: PilotView, arm: ArmView, final: ValidationRecord) -> bool:
    """Completed, with a finite final validation on the same examples."""
    own = _final(view, arm)
    if _status(arm) != Outcome.COMPLETED or own is None:
        return False
    return (own.name, own.token_counts) == (final.name, final.token_counts)


def _final(view: PilotView, arm: ArmView | None) -> ValidationRecord | None:
    """The final validation, when its loss is finite."""
    record = arm.validation(view.plan.final_validation) if arm else None
    return record if record is not None and math.isfinite(mean_loss(record)) else None


def _all_equal(view: PilotView, final: ValidationRecord, arm: ArmView) -> bool:
    """Whether a completed replica equals the baseline bit by bit, at the end and at every step."""
    own, baseline = _final(view, arm), view.baseline
    if own is None or baseline is None:
        return False
    losses = [[record.loss for record in run.steps] for run in (arm, baseline)]
    return own.loss_sums == final.loss_sums and losses[0] == losses[1]


def _step_losses(
    view: PilotView, runs: Sequence[Sequence[StepRecord]]
) -> dict[int, tuple[float, ...]]:
    """The finite losses of all runs at each peak step that all have with the same rows."""
    peak = peak_segment(view.plan)
    if peak is None:
        return {}
    by_step = [{r.step: r for r in run if math.isfinite(r.loss)} for run in runs]
    return {
        step: tuple(run[step].loss for run in by_step)
        for step in range(peak.first_step, peak.last_step + 1)
        if all(step in run for run in by_step) and len({run[step].row_hash for run in by_step}) == 1
    }


def _sd_of_means(losses: Sequence[tuple[float, ...]]) -> float | None:
    """The sd over runs of the mean over steps; None with fewer than ``_MIN_STEPS`` of them."""
    if len(losses) < _MIN_STEPS:
        return None
    return _sample_sd([float(np.mean(run)) for run in zip(*losses, strict=True)])


def _sample_sd(values: Sequence[float]) -> float:
    """The standard deviation (ddof 1); about the first value: equal ones give exactly 0."""
    return float(np.std(np.asarray(values) - values[0], ddof=1))
