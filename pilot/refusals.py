"""Why a pilot cannot be planned: what does not fit the budget or the full run, in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pilot.config import Config
from pilot.data.known import goes_back
from pilot.plan_shape import Shape


def refusals(
    config: Config, survey: Mapping[str, Any], shape: Shape, secs: float | None
) -> list[str]:
    """Every reason to refuse the pilot of ``shape``.

    ``secs``: what baseline and reference arm are expected to take; None: not known.
    """
    reasons = [*_over_budget(config, shape, secs), *_not_in_the_run(survey, shape)]
    if not survey.get("validation_rows"):
        held = survey.get("held_out") or {}
        none = "the recipe has no validation set: without one no verdict is possible"
        reasons.append(str(held.get("refused") or none))
    return reasons


def _over_budget(config: Config, shape: Shape, secs: float | None) -> Iterator[str]:
    needed, budget = shape.num_steps, config.pilot.budget_steps
    if budget is not None and needed > budget:
        warmup = max(0, shape.schedule.warmup_steps - shape.start)
        yield (
            f"pilot.budget_steps = {budget} cannot cover {needed} steps: {warmup} of warm-up, "
            f"{shape.num_peak} at the peak rate, {shape.cooldown} of cool-down; "
            "raise the budget or lower pilot.min_peak_steps"
        )
    limit = config.pilot.budget_secs
    if limit is not None and secs is not None and secs > limit:
        yield (
            f"pilot.budget_secs = {limit:g} is less than the expected {secs:.0f} s "
            f"(baseline and reference arm, {needed} steps each); raise it or shorten the pilot"
        )


def _not_in_the_run(survey: Mapping[str, Any], shape: Shape) -> Iterator[str]:
    """Why the full run has no such part: no peak, too few steps left, no rows behind its end."""
    whole, end = shape.schedule.schedule_steps, shape.stop + shape.cooldown
    left = whole - shape.start
    if shape.num_peak == 0 and left > 0:
        yield (
            f"the full run of {whole} steps never reaches its peak rate: "
            f"warm-up is {shape.schedule.warmup_steps} steps; shorten the warm-up"
        )
    if left < 2:
        yield (
            f"the full run of {whole} steps has {max(0, left)} step left after "
            f"step {shape.start}: three validations (before, between, after) need at least 2"
        )
    if not goes_back(survey) and end > whole:
        yield (
            f"the cool-down would end at step {end}, the Trainer's loop at step "
            f"{whole}: a stream's rows cannot be drawn behind it; train longer, "
            "or lower pilot.min_peak_steps or pilot.cooldown_steps"
        )
