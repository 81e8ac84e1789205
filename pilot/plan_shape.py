"""Where a pilot starts and stops: the full run's schedule, its peak steps and the cool-down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pilot.config import Config
from pilot.data.known import num_rows
from pilot.errors import PlanRefused
from pilot.schedule import TRAINER, RateTable, Schedule, full_schedule

# A rate this far below the peak has cooled down by itself: no branch is needed to compare.
_COOL_FRAC = 0.1


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Where a pilot starts and stops, its peak steps, and the length of its cool-down."""

    schedule: Schedule
    start: int
    stop: int
    num_peak: int
    cooldown: int

    @property
    def num_steps(self) -> int:
        """Steps that the baseline trains, its cool-down included."""
        return self.stop - self.start + self.cooldown


def shape_of(config: Config, survey: Mapping[str, Any], own_rates: RateTable | None) -> Shape:
    """The shape of the pilot that ``config`` asks for.

    Raises:
        PlanRefused: ``full_run.schedule: trainer`` without known rates.
    """
    start = start_step_of(config, survey)
    whole = full_schedule(config, num_rows(survey), own_rates)
    if whole.kind == TRAINER and not whole.peak > 0.0:
        raise PlanRefused([_no_rates(whole, survey)])
    schedule = whole.left_after(start)
    stop, num_peak = _stop_step(schedule, start, config.pilot.min_peak_steps)
    cooled = _cooled(schedule, stop == schedule.schedule_steps, stop)
    cooldown = 0 if cooled else config.pilot.cooldown_steps
    return Shape(schedule=schedule, start=start, stop=stop, num_peak=num_peak, cooldown=cooldown)


def start_step_of(config: Config, survey: Mapping[str, Any]) -> int:
    """Steps that the full run has done: the configuration's, or what the survey read."""
    given = config.full_run.start_step
    return int(survey.get("start_step") or 0) if given is None else given


def _no_rates(schedule: Schedule, survey: Mapping[str, Any]) -> str:
    """Why the Trainer's own rates give no plan."""
    if schedule.rates and not schedule.unknown:
        return "full_run.schedule = trainer, and the Trainer's own rate is 0 at every step"
    reason = schedule.unknown if schedule.rates else survey.get("failure") or schedule.unknown
    return f"full_run.schedule = trainer, and the Trainer's own rates are not known: {reason}"


def _stop_step(schedule: Schedule, start: int, min_peak_steps: int) -> tuple[int, int]:
    """The last step of the pilot and how many peak steps it has: ``min_peak_steps``, or all."""
    num_peak = 0
    for step in range(start + 1, schedule.last_planned + 1):
        if schedule.is_peak(step):
            num_peak += 1
            if num_peak == min_peak_steps:
                return step, num_peak
        elif num_peak:
            return _after_short_peak(schedule, start, step, min_peak_steps), num_peak
    return schedule.last_planned, num_peak


def _after_short_peak(schedule: Schedule, start: int, step: int, min_peak_steps: int) -> int:
    """The stop where the peak is shorter than asked for: its end, or all that a short run has."""
    short = schedule.last_planned <= max(start, schedule.warmup_steps) + min_peak_steps
    return schedule.last_planned if short else step - 1


def _cooled(schedule: Schedule, whole: bool, stop: int) -> bool:
    """Whether the full run ends within the pilot, at a rate that has gone down by itself."""
    return whole and schedule.knows(stop + 1) and schedule.factor_at(stop + 1) <= _COOL_FRAC
