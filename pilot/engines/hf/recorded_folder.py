"""The folder of a run that a callback records: whose it is, and what it holds before step 1."""

from __future__ import annotations

from pathlib import Path

import yaml

from pilot.engines.hf.describe import DescribedRun
from pilot.engines.recorder import Recorder
from pilot.errors import DiskFull, FolderError
from pilot.folder import BASELINE, ArmFolder, PilotFolder, count_attempts, read_json
from pilot.jsonl import write_json, write_text
from pilot.plan import baseline_job, read_plan
from pilot.schedule import Schedule
from pilot.survey import write_rows


def earlier_schedule(root: Path, max_steps: int) -> Schedule | None:
    """What an earlier attempt in ``root`` planned, if it is of a run of the same length.

    Raises:
        FolderError: its plan cannot be read.
    """
    path = PilotFolder(root).plan
    if not path.is_file() or not count_attempts(PilotFolder(root).arm(BASELINE)):
        return None
    try:
        schedule = read_plan(read_json(path)).schedule
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"its plan.json is damaged: {type(error).__name__}: {error}"
        raise FolderError(root, what, remedy="give a new out_dir") from error
    return schedule if schedule.schedule_steps == max_steps else None


def open_folder(run: DescribedRun, root: Path, done: int) -> tuple[int, Recorder]:
    """Take the folder for an attempt that begins after ``done`` steps, and write what is known.

    Returns:
        The number of the attempt, and its recorder.

    Raises:
        FolderError: the folder holds something else, or cannot be written.
    """
    arm = PilotFolder(root).arm(BASELINE)
    try:
        attempt = _next_attempt(root, arm, done)
        _write(run, root)
        for leftover in (arm.outcome, arm.absence):
            leftover.unlink(missing_ok=True)
        return attempt, Recorder(arm, attempt, start_step=done, pins_first_clip=False)
    except (OSError, DiskFull) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
        what = f"records cannot be written here: {reason}"
        raise FolderError(root, what, remedy="give another out_dir") from error


def _next_attempt(root: Path, arm: ArmFolder, done: int) -> int:
    """The number of this attempt. Raises ``FolderError`` for the folder of something else."""
    if PilotFolder(root).start.is_file():
        raise FolderError(root, "holds a pilot", remedy="give an out_dir of its own")
    attempt = count_attempts(arm) + 1
    if attempt == 1 and (foreign := PilotFolder(root).taken_names()):
        what = f"holds files of something else: {', '.join(foreign)}"
        raise FolderError(root, what, remedy="give an out_dir of its own")
    if attempt > 1 and not done:
        what = "holds the records of another run"
        raise FolderError(root, what, remedy="give a new out_dir")
    return attempt


def _write(run: DescribedRun, root: Path) -> None:
    """Configuration, survey, row table, plan and job, so that the folder reads as a pilot's."""
    folder = PilotFolder(root)
    arm: ArmFolder = folder.arm(BASELINE)
    arm.root.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(run.config.model_dump(mode="json", by_alias=True), sort_keys=False)
    write_text(folder.config, text)
    write_text(arm.config, text)
    write_rows(folder.rows, run.facts, list(run.survey["source_names"]))
    write_json(folder.survey, run.survey)
    write_json(folder.plan, run.plan)
    write_json(arm.job, baseline_job(run.plan, module_path=""))
