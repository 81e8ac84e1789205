"""What a plan says beside its steps: what stays unmeasured, and what to know before it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pilot.arms.price import PlannedArm
from pilot.config import Config
from pilot.data.known import goes_back, is_stream, num_rows
from pilot.engines import MAX_WORLD_SIZE
from pilot.own_rates import SURVEYED
from pilot.restored import EXPERIMENT, lost_lines, start_lines
from pilot.schedule import TRAINER, full_schedule

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
    lines = _data_notes(survey)
    if start or config.recipe.get("resume_from") is not None:
        lines.extend(_start_lines(config, survey, start))
    dtype = "float64" if config.precision == "fp64" else "float32"
    built = survey.get("built_dtypes") or [dtype]
    if built != [dtype]:
        lines.append(
            f"the recipe builds weights in {', '.join(built)}; precision={config.precision} "
            f"trains them in {dtype}"
        )
    lines.extend(_rate_warnings(config, survey, start))
    judged = survey.get("objective") in (None, *_JUDGED)
    if judged and not any(arm.is_reference and not arm.left_out for arm in arms):
        lines.append("no arm of a lower learning rate: the gate progress cannot be judged")
    return tuple(lines)


def _rate_warnings(config: Config, survey: Mapping[str, Any], start: int) -> list[str]:
    """Where the optimizer's own rates are not what ``optim.learning_rate`` seems to say.

    Of a run that goes on, the survey saw the rates that are left; the configured one is their peak
    only where the schedule has a formula to compare with.
    """
    facts = survey.get(SURVEYED) or {}
    peaks, named = facts.get("peaks") or (), config.optim.learning_rate
    lines = []
    expected = _peak_after(config, survey, start)
    if peaks and peaks[0] and expected and abs(peaks[0] - expected) > 1e-6 * named:
        lines.append(
            f"the optimizer's highest rate is {peaks[0]:.6g}, optim.learning_rate is {named:.6g}: "
            "the Trainer's optimizer or scheduler has its own; an arm of the learning rate scales "
            "all its rates"
        )
    if facts.get("raises"):
        lines.append(f"the full run will break: {facts['raises']}")
    if not facts.get("proportional", True):
        lines.append(
            f"the {facts['num_groups']} parameter groups follow different schedules: plan and "
            "records show the first one's rate"
        )
    return lines


def _peak_after(config: Config, survey: Mapping[str, Any], start: int) -> float | None:
    """The highest configured rate of the steps after ``start``; None: not known from the recipe."""
    if not start:
        return config.optim.learning_rate
    schedule = full_schedule(config, num_rows(survey))
    if schedule.kind == TRAINER:
        return None
    first = max(start, schedule.warmup_steps) + 1
    return max(schedule.learning_rate_at(step) for step in (start + 1, first))


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


def _num_unreadable(survey: Mapping[str, Any]) -> int:
    """Training rows that the gate labels tells of."""
    audits = survey.get("label_audit") or ()
    return sum(int(a.get("num_unreadable") or 0) for a in audits if a.get("set") == "train")


def _same_rows(sets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Validation sets that are a training set: what is learned by heart looks like progress."""
    known = [item for item in sets if item.get("sha256") and item.get("rows")]
    return [
        f"{other['name']} has the very rows of {one['name']}: its loss says nothing of other data"
        for index, one in enumerate(known)
        for other in known[index + 1 :]
        if (one["sha256"], one["rows"]) == (other["sha256"], other["rows"])
    ]


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
    lines.extend(_same_rows(survey.get("data") or ()))
    measured = survey.get("num_rows_measured")
    if measured == 0 and total:
        lines.append("lengths of the rows are not known: the collator takes none by itself")
    elif measured is not None and total is not None and measured + _num_unreadable(survey) < total:
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
        _world_sizes(config),
        "alignment and masking of labels, overlap of train and validation data, level of the loss: "
        "no experiment checks them in this version",
    ]
    unknown = str((survey.get(SURVEYED) or {}).get("unknown") or "")
    if unknown:
        missing.append(f"the learning rates of the full run: {unknown}")
    missing.extend(_stream(survey))
    missing.extend(_lacking(config, survey))
    if survey.get("failure"):
        missing.append(f"expected time: {survey['failure']}")
    missing.extend(lost_lines(survey["resume"]) if survey.get("resume") else ())
    missing.extend(f"check {name}: skipped by checks.skip" for name in config.checks.skip)
    return tuple(missing)


def _stream(survey: Mapping[str, Any]) -> list[str]:
    """What rows without ids and without a number leave open."""
    if not is_stream(survey):
        return []
    lines = [
        "sources, lengths and order of the whole training data, and its longest row: it is a "
        "stream, whose rows have no ids and no known number; only what was drawn is counted",
        "labels of the training data behind its first rows: a stream is looked at in its beginning",
    ]
    if not goes_back(survey):
        lines.append(
            "determinism of a step, and more steps for an event undecided at the end of the peak: "
            "rows that the Trainer's loop has drawn from a stream do not come again"
        )
    return lines


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
