"""What a plan says beside its steps: what stays unmeasured, and what to know before it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pilot.arms.price import PlannedArm
from pilot.config import Config
from pilot.restored import EXPERIMENT, lost_lines, start_lines

# Objectives whose loss the gate `progress` judges.
_JUDGED = ("lm", "regression")


def plan_warnings(
    config: Config, survey: Mapping[str, Any], start: int, arms: Sequence[PlannedArm]
) -> tuple[str, ...]:
    """In what the pilot differs from the full run that the recipe describes, and what it lacks."""
    lines = []
    if start or config.recipe.get("resume_from") is not None:
        lines.extend(_start_lines(config, survey, start))
    dtype = "float64" if config.precision == "fp64" else "float32"
    built = survey.get("built_dtypes") or [dtype]
    if built != [dtype]:
        lines.append(
            f"the recipe builds weights in {', '.join(built)}; precision={config.precision} "
            f"trains them in {dtype}"
        )
    judged = survey.get("objective") in (None, *_JUDGED)
    if judged and not any(arm.is_reference and not arm.left_out for arm in arms):
        lines.append("no arm of a lower learning rate: the gate progress cannot be judged")
    return tuple(lines)


def _start_lines(config: Config, survey: Mapping[str, Any], start: int) -> list[str]:
    given, found = config.recipe.get("resume_from"), survey.get("resume")
    lines = []
    if given is not None and found is None:
        lines.append(
            f"starts after step {start} from {given}: the survey could not look at it; the arms' "
            f"evidence {EXPERIMENT} says what they restored"
        )
    else:
        lines.extend(start_lines(start, found))
    if given is not None and config.engine.name == "native" and config.pilot.data != "prefix":
        lines.append(
            "pilot.data=representative: rows are a sample, the data position is not the run's; "
            "pilot.data=prefix goes on with the run's own next rows"
        )
    return lines


def not_measured(config: Config, survey: Mapping[str, Any]) -> tuple[str, ...]:
    """What no experiment of this pilot can tell, one line each."""
    missing = [
        "invariance and resume experiments are not part of this version",
        f"world sizes above 1: engine={config.engine.name} runs one process",
        "alignment and masking of labels, overlap of train and validation data, level of the loss: "
        "no experiment checks them in this version",
    ]
    if survey.get("failure"):
        missing.append(f"expected time: {survey['failure']}")
    missing.extend(lost_lines(survey["resume"]) if survey.get("resume") else ())
    missing.extend(f"check {name}: skipped by checks.skip" for name in config.checks.skip)
    return tuple(missing)
