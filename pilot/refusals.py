"""Why a pilot cannot be planned: what does not fit the budget or the full run, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilot.config import Config
from pilot.data.known import goes_back
from pilot.schedule import Schedule


def refusals(
    config: Config,
    survey: Mapping[str, Any],
    schedule: Schedule,
    start: int,
    stop: int,
    num_peak: int,
    cooldown: int,
    secs: float | None,
) -> list[str]:
    """Every reason to refuse a pilot from step ``start`` to ``stop`` and its cool-down."""
    reasons = []
    needed, budget = stop - start + cooldown, config.pilot.budget_steps
    if budget is not None and needed > budget:
        warmup = max(0, schedule.warmup_steps - start)
        reasons.append(
            f"pilot.budget_steps = {budget} cannot cover {needed} steps: {warmup} of warm-up, "
            f"{num_peak} at the peak rate, {cooldown} of cool-down; "
            "raise the budget or lower pilot.min_peak_steps"
        )
    limit = config.pilot.budget_secs
    if limit is not None and secs is not None and secs > limit:
        reasons.append(
            f"pilot.budget_secs = {limit:g} is less than the expected {secs:.0f} s "
            f"(baseline and reference arm, {needed} steps each); raise it or shorten the pilot"
        )
    left = schedule.schedule_steps - start
    if num_peak == 0 and left > 0:
        reasons.append(
            f"the full run of {schedule.schedule_steps} steps never reaches its peak rate: "
            f"warm-up is {schedule.warmup_steps} steps; shorten the warm-up"
        )
    if left < 2:
        reasons.append(
            f"the full run of {schedule.schedule_steps} steps has {max(0, left)} step left after "
            f"step {start}: three validations (before, between, after) need at least 2"
        )
    if not goes_back(survey) and stop + cooldown > schedule.schedule_steps:
        reasons.append(
            f"the cool-down would end at step {stop + cooldown}, the Trainer's loop at step "
            f"{schedule.schedule_steps}: a stream's rows cannot be drawn behind it; train longer, "
            "or lower pilot.min_peak_steps or pilot.cooldown_steps"
        )
    if not survey.get("validation_rows"):
        held = survey.get("held_out") or {}
        none = "the recipe has no validation set: without one no verdict is possible"
        reasons.append(str(held.get("refused") or none))
    return reasons
