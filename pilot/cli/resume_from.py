"""``recipe.resume_from``: looks at the user's checkpoint before anything runs, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pilot.errors import ConfigError, Mistake
from pilot.user_checkpoint import KEY, TRAINER, TRAINER_STATE, UserCheckpoint, look, resume_path

_STEP = "full_run.start_step"


def start_from(
    tree: dict[str, Any] | None, unresolved: dict[str, Any], start: Path
) -> tuple[list[str], list[Mistake]]:
    """Check the checkpoint and take ``full_run.start_step`` from it, where it says its step.

    Args:
        tree: the resolved configuration; None where it does not compose.
        unresolved: the same with its interpolations. The step is written into both.
        start: where relative paths begin.

    Returns:
        The override that gives Hydra the step (none without one), and all mistakes.
    """
    recipe, run = ((tree or {}).get(name) for name in ("recipe", "full_run"))
    if not isinstance(recipe, Mapping):
        return [], []
    if recipe.get("resume_from") is None:
        step = run.get("start_step") if isinstance(run, Mapping) else None
        return [], _without_checkpoint(step) if recipe.get("trainer") and step else []
    value = recipe["resume_from"]
    if not isinstance(value, str) or not value.strip():
        rule, remedy = "must be the path of a checkpoint, as text", "give checkpoint-N or a file"
        return [], [Mistake(key=KEY, value=repr(value), rule=rule, remedy=remedy)]
    path = resume_path(recipe, start)
    assert path is not None
    try:
        found = look(path)
    except ConfigError as error:
        return [], list(error.mistakes)
    mistakes = _engine_mistakes(found, bool(recipe.get("trainer")))
    if not isinstance(run, dict) or found.step is None:
        return [], mistakes
    given = run.get("start_step")
    mistakes += _step_mistakes(found.step, given, run.get("schedule_steps"), value)
    if mistakes:
        return [], mistakes
    run["start_step"] = found.step
    if isinstance(unresolved.get("full_run"), dict):
        unresolved["full_run"]["start_step"] = found.step
    return [f"{_STEP}={found.step}"] if given is None else [], []


def _without_checkpoint(step: object) -> list[Mistake]:
    """A Trainer counts its steps itself: only a checkpoint lets it begin behind step 0."""
    rule = "a Trainer begins at step 0 unless it resumes from a checkpoint"
    remedy = "give recipe.resume_from=path/to/checkpoint-N: it says the step"
    return [Mistake(key=_STEP, value=str(step), rule=rule, remedy=remedy)]


def _engine_mistakes(found: UserCheckpoint, is_trainer: bool) -> list[Mistake]:
    if not is_trainer or found.kind == TRAINER:
        return []
    rule = f"a Trainer resumes from a folder with {TRAINER_STATE}; there is none in {found.folder}"
    remedy = "give the checkpoint-N folder, or load these weights in your build_trainer()"
    return [Mistake(key=KEY, value=str(found.path), rule=rule, remedy=remedy)]


def _step_mistakes(saved: int, given: object, steps: object, value: str) -> list[Mistake]:
    """Whether the step is the one that is ``given``, and the run goes beyond it."""
    if given is not None and given != saved:
        rule = f"must be the step of the checkpoint: {KEY} = {value} was saved after step {saved}"
        remedy = f"drop {_STEP}, or name the checkpoint of that step"
        return [Mistake(key=_STEP, value=str(given), rule=rule, remedy=remedy)]
    if isinstance(steps, int) and saved >= steps:
        rule = f"was saved after step {saved}; full_run.schedule_steps = {steps} are all done"
        remedy = "lengthen the run or take an earlier checkpoint"
        return [Mistake(key=KEY, value=value, rule=rule, remedy=remedy)]
    return []
