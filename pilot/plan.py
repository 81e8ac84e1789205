"""From the full run to the pilot: segments, validations, checkpoints, expected cost.

``make_plan`` is a pure function of the configuration and the survey. It refuses what cannot cover
the warm-up, the peak segment or the validations within the budget, with the numbers; nothing is
silently shortened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pilot.arms.price import (
    PlannedArm,
    WholeArm,
    count_steps,
    planned_arms,
    reference_only,
    rows_needed,
    wall_secs,
)
from pilot.config import Config
from pilot.data.known import goes_back, num_rows
from pilot.errors import PlanRefused
from pilot.folder import BASELINE, Job
from pilot.jsonl import from_json
from pilot.plan_notes import not_measured, plan_warnings
from pilot.plan_shape import Shape, shape_of
from pilot.refusals import refusals
from pilot.schedule import RateTable, Schedule
from pilot.segments import Segment, make_segments

BEFORE, WARMUP_END, MID_PEAK, PEAK_END = "before", "warmup_end", "mid_peak", "peak_end"
RUN_END, COOLDOWN_END = "run_end", "cooldown_end"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The pilot of one full run. Steps are counted as in the full run, from 1.

    ``pilot_steps`` is the number of steps trained before the cool-down branch; ``stop_step`` is the
    last of them. ``final_validation`` names the validation that the gates compare with ``before``.
    ``extension_steps`` are those by which an undecided event may extend the baseline.
    ``num_arm_steps`` are the steps that all planned arms may take, cool-downs included, without the
    baseline's; ``num_parallel`` arms run at a time, each of ``num_processes`` processes with
    ``num_threads`` (None: torch's choice).
    """

    recipe: str
    schedule: Schedule
    start_step: int
    stop_step: int
    pilot_steps: int
    num_peak_steps: int
    cooldown_steps: int
    whole_run: bool
    segments: tuple[Segment, ...]
    validations: Mapping[str, int]
    final_validation: str
    checkpoints: Mapping[str, int]
    checkpoint_bytes: int
    rows_per_step: int
    num_rows_needed: int
    arms: tuple[PlannedArm, ...]
    num_arm_steps: int
    num_parallel: int
    num_threads: int | None
    share_of_full_run: float
    expected_secs: float | None
    not_measured: tuple[str, ...]
    warnings: tuple[str, ...]
    extension_steps: int = 0
    num_processes: int = 1

    @property
    def num_arms(self) -> int:
        """Arms that will be run, the baseline not counted."""
        return sum(not arm.left_out for arm in self.arms)

    @property
    def price_ratio(self) -> float:
        """Steps of everything, at most, over the baseline's own: its cool-down is extra too."""
        whole = self.pilot_steps + self.cooldown_steps + self.num_arm_steps
        return whole / self.pilot_steps


def make_plan(
    config: Config,
    survey: Mapping[str, Any],
    *,
    warnings: tuple[str, ...] = (),
    has_noise_floor: bool = False,
    own_rates: RateTable | None = None,
    refuses: bool = True,
) -> Plan:
    """Plan the pilot of ``config``.

    Args:
        config: the validated configuration.
        survey: ``survey.json``: ``num_train_rows`` (None: a stream), ``checkpoint_bytes``,
            ``timing`` (seconds), ``validation_rows`` and ``failure``.
        warnings: what the configuration's author should know; printed with the plan.
        has_noise_floor: a stored one replaces the replicas.
        own_rates: the rates of ``full_run.schedule: trainer``, as the survey measured them.
        refuses: false for a run that is only watched: it is as it is.

    Raises:
        PlanRefused: with every reason and its numbers.
    """
    shape = shape_of(config, survey, own_rates)
    whole, at_once = _whole_arm(config, survey, shape), _at_once(survey)
    arms = planned_arms(config, whole, at_once, has_noise_floor)
    least = wall_secs(whole.secs, reference_only(arms), at_once)
    reasons = refusals(config, survey, shape, least)
    if reasons and refuses:
        raise PlanRefused(reasons)
    return _plan(config, survey, shape, arms, warnings)


def _plan(
    config: Config,
    survey: Mapping[str, Any],
    shape: Shape,
    arms: tuple[PlannedArm, ...],
    warnings: tuple[str, ...],
) -> Plan:
    schedule, start, stop, cooldown = shape.schedule, shape.start, shape.stop, shape.cooldown
    extension, at_once = _extension_steps(config, survey, shape), _at_once(survey)
    return Plan(
        recipe=str(config.recipe["name"]),
        schedule=schedule.up_to(stop + extension + 1),
        start_step=start,
        stop_step=stop,
        pilot_steps=stop - start,
        num_peak_steps=shape.num_peak,
        cooldown_steps=cooldown,
        whole_run=stop == schedule.schedule_steps,
        segments=make_segments(schedule, start, stop, cooldown),
        validations=_validations(shape),
        final_validation=COOLDOWN_END if cooldown else RUN_END,
        checkpoints=_checkpoints(config, survey, shape),
        checkpoint_bytes=int(survey.get("checkpoint_bytes") or 0),
        rows_per_step=config.rows_per_step,
        num_rows_needed=rows_needed(config, shape.num_steps),
        arms=arms,
        num_arm_steps=count_steps(arms),
        num_parallel=at_once,
        num_threads=survey.get("num_threads_per_arm"),
        share_of_full_run=(stop - start) / max(1, schedule.schedule_steps - start),
        expected_secs=wall_secs(_arm_secs(survey, shape), arms, at_once),
        not_measured=not_measured(config, survey),
        warnings=(*warnings, *plan_warnings(config, survey, start, arms)),
        extension_steps=extension,
        num_processes=config.launcher.num_processes,
    )


def last_drawn_step(config: Config, num_rows: int, own_rates: RateTable | None = None) -> int:
    """The last step for which any arm of the pilot may draw rows, counted from the full run's.

    Raises:
        PlanRefused: ``full_run.schedule: trainer`` without known rates.
    """
    shape = shape_of(config, {"num_train_rows": num_rows}, own_rates)
    left = shape.schedule.schedule_steps - shape.stop
    return shape.stop + max(shape.cooldown, min(config.pilot.max_extension_steps, left))


def baseline_job(plan: Plan, module_path: str) -> Job:
    """What the baseline of ``plan`` has to do."""
    return Job(
        arm=BASELINE,
        role=BASELINE,
        variable="",
        value="",
        start_step=plan.start_step,
        stop_step=plan.stop_step,
        cooldown_steps=plan.cooldown_steps,
        validations=plan.validations,
        checkpoints=plan.checkpoints,
        module_path=module_path,
        title=BASELINE,
    )


def read_plan(data: Mapping[str, Any]) -> Plan:
    """A plan from its JSON file."""
    values = dict(data)
    values["schedule"] = from_json(Schedule, values["schedule"])
    values["segments"] = [from_json(Segment, item) for item in values["segments"]]
    values["arms"] = [from_json(PlannedArm, item) for item in values["arms"]]
    return from_json(Plan, values)


def _validations(shape: Shape) -> dict[str, int]:
    start, stop, warmup = shape.start, shape.stop, shape.schedule.warmup_steps
    places = {BEFORE: start}
    if start < warmup < stop:
        places[WARMUP_END] = warmup
    else:
        places[MID_PEAK] = start + max(1, (stop - start) // 2)
    places[PEAK_END if shape.cooldown else RUN_END] = stop
    if shape.cooldown:
        places[COOLDOWN_END] = stop + shape.cooldown
    return places


def _checkpoints(config: Config, survey: Mapping[str, Any], shape: Shape) -> dict[str, int]:
    start, stop, warmup = shape.start, shape.stop, shape.schedule.warmup_steps
    pinned = {"start": start}
    if start < warmup < stop:
        pinned["warmup_end"] = warmup
    pinned["peak_end"] = stop
    too_big = int(survey.get("checkpoint_bytes") or 0) > config.pilot.max_checkpoint_bytes
    return {"peak_end": stop} if too_big else pinned


def _extension_steps(config: Config, survey: Mapping[str, Any], shape: Shape) -> int:
    """Steps that an undecided event may add; none where the rows of the peak's end are gone."""
    if not goes_back(survey):
        return 0
    return min(config.pilot.max_extension_steps, shape.schedule.last_planned - shape.stop)


def _at_once(survey: Mapping[str, Any]) -> int:
    return int(survey.get("num_parallel") or 1)


def _whole_arm(config: Config, survey: Mapping[str, Any], shape: Shape) -> WholeArm:
    on_cpu = str(survey.get("device", "cpu")).startswith("cpu")
    return WholeArm(
        num_steps=shape.num_steps,
        secs=_arm_secs(survey, shape),
        stop_step=shape.stop,
        num_rows=num_rows(survey),
        num_devices=1 if on_cpu else config.launcher.num_processes,
    )


def _arm_secs(survey: Mapping[str, Any], shape: Shape) -> float | None:
    """Seconds of one whole arm, or None where no step could be timed."""
    timing = survey.get("timing") or {}
    if "step_secs" not in timing:
        return None
    return (
        float(timing["start_secs"])
        + shape.num_steps * float(timing["step_secs"])
        + len(_validations(shape)) * float(timing["validation_secs"])
    )
