"""A pilot as read back from its folder: a pure read of files, without torch.

Everything that judges, draws or reports starts from ``load``.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pilot.errors import FolderError
from pilot.folder import BASELINE, ArmFolder, Job, PilotFolder, count_attempts, read_json
from pilot.jsonl import from_json, read_jsonl
from pilot.plan import Plan, read_plan
from pilot.records import Evidence, Outcome, Resource, StepRecord, ValidationRecord, join_attempts


@dataclass(frozen=True, kw_only=True)
class ArmView:
    """All that is known of one arm, joined over its attempts.

    The records of a forked arm begin with the baseline's, those of an identical one are the
    baseline's. ``num_own_steps`` counts the steps it trained itself, cool-down included;
    ``absence`` says why there is no outcome (status ``lost`` or ``not run``, and the reason).
    ``extension`` are steps of the baseline after the end of the peak, trained while an event was
    undecided; a branch like the cool-down, compared with nothing.
    """

    job: Job
    steps: tuple[StepRecord, ...]
    cooldown: tuple[StepRecord, ...]
    validations: tuple[ValidationRecord, ...]
    evidence: tuple[Evidence, ...]
    resources: tuple[Resource, ...]
    outcome: Outcome | None
    num_attempts: int
    num_own_steps: int = 0
    extension: tuple[StepRecord, ...] = ()
    absence: Mapping[str, str] = field(default_factory=dict)
    lineage: Mapping[str, Any] = field(default_factory=dict)

    def validation(self, at: str) -> ValidationRecord | None:
        """The primary validation at a planned place; the last attempt wins."""
        found = [v for v in self.validations if v.at == at and v.primary]
        return found[-1] if found else None

    def experiment(self, name: str) -> Evidence | None:
        """The newest evidence of one experiment."""
        found = [e for e in self.evidence if e.experiment == name]
        return found[-1] if found else None


@dataclass(frozen=True, kw_only=True)
class RowTable:
    """Lengths (tokens) and sources of all training rows; ``source`` indexes ``source_names``."""

    num_tokens: npt.NDArray[np.int64]
    num_supervised_tokens: npt.NDArray[np.int64]
    source: npt.NDArray[np.int64]
    source_names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PilotView:
    """A whole pilot as read from its folder: the only input of judging, beside the gates.

    ``words`` are the overrides of the command line that began it; ``stored_noise`` is the noise
    floor that replaced the replicas, if one did.
    """

    config: Mapping[str, Any]
    plan: Plan
    survey: Mapping[str, Any]
    rows: RowTable
    fingerprint: Mapping[str, Any]
    arms: Mapping[str, ArmView]
    words: tuple[str, ...] = ()
    stored_noise: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_watched(self) -> bool:
        """Whether these are the records of a run of the user's own (``pilot.PilotCallback``)."""
        return bool(self.survey.get("watched"))

    @property
    def baseline(self) -> ArmView | None:
        """The recipe unchanged."""
        return self.arms.get(BASELINE)


def load(root: Path) -> PilotView:
    """Read a pilot's folder.

    Raises:
        FolderError: it is not the folder of a pilot, or has no plan yet.
    """
    folder = PilotFolder(root)
    for needed in (folder.config, folder.survey, folder.plan):
        if not needed.is_file():
            raise FolderError(
                root,
                f"not a pilot that has been planned: {needed.name} is missing",
                remedy="give the folder that `python -m pilot +recipe=...` printed",
            )
    try:
        return _load(root, folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise FolderError(
            root,
            f"a file in it is damaged or missing: {type(error).__name__}: {error}",
            remedy="put the file back, or start a new pilot; records of other arms are not touched",
        ) from error


def _load(root: Path, folder: PilotFolder) -> PilotView:
    import yaml

    survey = read_json(folder.survey)
    paths = sorted(p for p in (root / "arms").glob("*") if (p / "job.json").is_file())
    arms = {path.name: load_arm(path) for path in paths}
    baseline = arms.get(BASELINE)
    if baseline is not None:
        arms = {n: a if n == BASELINE else join_fork(baseline, a) for n, a in arms.items()}
    return PilotView(
        config=yaml.safe_load(folder.config.read_text(encoding="utf-8")),
        plan=read_plan(read_json(folder.plan)),
        survey=survey,
        rows=load_rows(folder, survey),
        fingerprint=read_json(folder.fingerprint) if folder.fingerprint.is_file() else {},
        arms=arms,
        words=tuple(read_json(folder.start).get("words") or ()) if folder.start.is_file() else (),
        stored_noise=read_json(folder.noise) if folder.noise.is_file() else {},
    )


def load_rows(folder: PilotFolder, survey: Mapping[str, Any]) -> RowTable:
    """The row table of a surveyed pilot."""
    with np.load(folder.rows, allow_pickle=False) as data:
        return RowTable(
            num_tokens=data["num_tokens"].astype(np.int64),
            num_supervised_tokens=data["num_supervised_tokens"].astype(np.int64),
            source=data["source"].astype(np.int64),
            source_names=tuple(survey["source_names"]),
        )


def load_arm(root: Path) -> ArmView:
    """Read one arm's folder, attempts joined: a later attempt wins from its first step on."""
    folder = ArmFolder(root)
    attempts = count_attempts(folder)
    numbers = range(1, attempts + 1)
    outcome = read_json(folder.outcome) if folder.outcome.is_file() else None
    steps = tuple(join_attempts(read_jsonl(folder.steps(n), StepRecord) for n in numbers))
    cooldown = tuple(join_attempts(read_jsonl(folder.cooldown(n), StepRecord) for n in numbers))
    further = tuple(join_attempts(read_jsonl(folder.extension(n), StepRecord) for n in numbers))
    return ArmView(
        job=from_json(Job, read_json(folder.job)),
        steps=steps,
        cooldown=cooldown,
        validations=tuple(read_jsonl(folder.validations, ValidationRecord)),
        evidence=tuple(read_jsonl(folder.evidence, Evidence)),
        resources=tuple(read_jsonl(folder.resources, Resource)),
        outcome=from_json(Outcome, outcome) if outcome else None,
        num_attempts=attempts,
        num_own_steps=len(steps) + len(cooldown) + len(further),
        extension=further,
        absence=_read_if_there(folder.absence),
        lineage=_read_if_there(folder.lineage),
    )


def _read_if_there(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one: the file may go away while an arm is started again."""
    try:
        return read_json(path)
    except FileNotFoundError:
        return {}


def join_fork(baseline: ArmView, arm: ArmView) -> ArmView:
    """``arm`` with the records that it shares with the baseline.

    A forked arm has the baseline's steps and validations up to its fork, an identical one all of
    them, and its evidence too.
    """
    if arm.outcome is not None and arm.outcome.status == Outcome.IDENTICAL:
        return replace(
            arm,
            steps=baseline.steps,
            cooldown=baseline.cooldown,
            validations=baseline.validations,
            evidence=(*arm.evidence, *baseline.evidence),
        )
    fork = arm.job.fork_step
    if fork is None or not arm.num_attempts:
        return arm
    return replace(
        arm,
        steps=(*(r for r in baseline.steps if r.step <= fork), *arm.steps),
        validations=(*(v for v in baseline.validations if v.step <= fork), *arm.validations),
    )
