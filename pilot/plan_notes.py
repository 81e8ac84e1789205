"""What a plan says beside its steps: what stays unmeasured, and what to know before it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pilot.arms.price import PlannedArm
from pilot.config import Config

# Objectives whose loss the gate `progress` judges.
_JUDGED = ("lm", "regression")


def plan_warnings(
    config: Config, survey: Mapping[str, Any], start: int, arms: Sequence[PlannedArm]
) -> tuple[str, ...]:
    """In what the pilot differs from the full run that the recipe describes, and what it lacks."""
    lines = _data_notes(survey)
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


def _data_notes(survey: Mapping[str, Any]) -> list[str]:
    """What is to be known of the rows: those held out, those not read, those that change."""
    lines = []
    held = survey.get("held_out") or {}
    count, total = held.get("num_rows"), survey.get("num_train_rows")
    if held.get("mode") == "undrawn":
        lines.append(
            f"no validation set: {count} training rows that no step of this pilot draws are held "
            "out as one; the run itself is unchanged"
        )
    elif held.get("mode") == "share":
        lines.append(
            f"no validation set: {count} of {total} training rows are held out as one and not "
            "trained on; the full run would train on them, its steps stay the same"
        )
    if held.get("has_been_trained_on"):
        lines.append("the held-out rows may have been trained on before the pilot's first step")
    measured = survey.get("num_rows_measured")
    if measured is not None and measured < total:
        lines.append(
            f"lengths are those of {measured:,} of {total:,} rows, evenly spread: reading every "
            "row takes too long"
        )
    if survey.get("order_is_fixed") is False:
        lines.append(
            "the Trainer's loader shuffles by the random state it finds when training begins: the "
            "order that is audited here is one of many"
        )
    for item in survey.get("data") or ():
        if item["note"]:
            lines.append(
                f"{item['name']}: {item['note']}; the verdict is not bound to their content, and "
                "arms are paired by row number alone"
            )
        if item["unknown"]:
            kinds = ", ".join(item["unknown"])
            lines.append(f"{item['name']}: a change inside these is not seen: {kinds}")
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
    missing.extend(f"check {name}: skipped by checks.skip" for name in config.checks.skip)
    return tuple(missing)
