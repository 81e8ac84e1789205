"""What a plan says beside its steps: what stays unmeasured, and what to know before it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pilot.arms.price import PlannedArm
from pilot.config import Config
from pilot.engines import MAX_WORLD_SIZE

# Objectives whose loss the gate `progress` judges.
_JUDGED = ("lm", "regression")


# A capability that an engine lacks -> what is therefore not measured.
_LACKING: Mapping[str, str] = {
    "can_replay": "determinism, and what a replay of a step would tell",
    "can_snapshot": "a restart from a state: a run that is killed begins anew",
    "can_branch": "the cool-down, and arms that begin at a state of the baseline",
    "reports_row_ids": "which rows a step trained on: steps cannot be paired by their rows",
    "reports_pre_clip_norm": "gradient norms before clipping",
}


def plan_warnings(
    config: Config, survey: Mapping[str, Any], start: int, arms: Sequence[PlannedArm]
) -> tuple[str, ...]:
    """In what the pilot differs from the full run that the recipe describes, and what it lacks."""
    lines = []
    if start:
        lines.append(f"starts at step {start} with fresh optimizer state")
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


def not_measured(config: Config, survey: Mapping[str, Any]) -> tuple[str, ...]:
    """What no experiment of this pilot can tell, one line each."""
    missing = [
        "invariance and resume experiments are not part of this version",
        _world_sizes(config),
        "alignment and masking of labels, overlap of train and validation data, level of the loss: "
        "no experiment checks them in this version",
    ]
    missing.extend(_lacking(config, survey))
    if survey.get("failure"):
        missing.append(f"expected time: {survey['failure']}")
    missing.extend(f"check {name}: skipped by checks.skip" for name in config.checks.skip)
    return tuple(missing)


def _world_sizes(config: Config) -> str:
    num = config.launcher.num_processes
    if MAX_WORLD_SIZE[config.engine.name] == 1:
        return f"world sizes above 1: engine={config.engine.name} runs one process"
    runs = "one process" if num == 1 else f"{num} processes"
    return (
        f"world sizes other than {num}: the pilot trains in {runs} (launcher.num_processes), and "
        "cannot know in how many the full run does"
    )


def _lacking(config: Config, survey: Mapping[str, Any]) -> list[str]:
    """What the engine cannot do, by the capabilities that it declared in the survey."""
    declared = survey.get("capabilities") or {}
    lines = [
        f"{what}: engine={config.engine.name} has no {name}"
        for name, what in _LACKING.items()
        if declared.get(name) is False
    ]
    return [*lines, *(str(line) for line in survey.get("not_measured") or ())]
