"""The folder of a pilot: where each file lies, and how what was measured is read back.

Everything that judges starts from ``load``: a pure read of files, without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pilot.errors import FolderError
from pilot.plan import Plan, read_plan
from pilot.records import (
    Evidence,
    Outcome,
    Resource,
    StepRecord,
    ValidationRecord,
    from_json,
    join_attempts,
    parse,
    read_jsonl,
)

BASELINE = "baseline"


@dataclass(frozen=True)
class ArmFolder:
    """The paths of one arm. A launcher only has to run ``python -m pilot arm ROOT``."""

    root: Path

    @property
    def config(self) -> Path:
        """The resolved configuration of this arm."""
        return self.root / "config.yaml"

    @property
    def job(self) -> Path:
        """What this arm has to do: its name, variable, steps, validations (``job.json``)."""
        return self.root / "job.json"

    @property
    def outcome(self) -> Path:
        """The completion marker."""
        return self.root / "outcome.json"

    @property
    def error(self) -> Path:
        """A usage error or a fault of pilot, for the parent to show (``error.json``)."""
        return self.root / "error.json"

    @property
    def validations(self) -> Path:
        """Validation records, append-only over attempts."""
        return self.root / "validations.jsonl"

    @property
    def evidence(self) -> Path:
        """What the experiments of this arm measured."""
        return self.root / "evidence.jsonl"

    @property
    def resources(self) -> Path:
        """Seconds and bytes; the only file that differs between two equal runs."""
        return self.root / "resources.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Pinned states and the newest ones."""
        return self.root / "checkpoints"

    @property
    def lineage(self) -> Path:
        """Parent, fork step and checkpoint hash; attempts."""
        return self.root / "lineage.json"

    @property
    def log(self) -> Path:
        """Standard output and error of the arm's process."""
        return self.root / "log.txt"

    def steps(self, attempt: int) -> Path:
        """The step records of one attempt (1-based)."""
        return self.root / f"steps.{attempt:03d}.jsonl"

    def cooldown(self, attempt: int) -> Path:
        """The step records of one attempt's cool-down branch."""
        return self.root / f"cooldown.{attempt:03d}.jsonl"


@dataclass(frozen=True)
class PilotFolder:
    """The paths of one pilot."""

    root: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.root / "config.yaml"

    @property
    def unresolved(self) -> Path:
        """The composed configuration with its interpolations, for one-variable proofs."""
        return self.root / "config.unresolved.yaml"

    @property
    def start(self) -> Path:
        """Where the pilot was started and which recipe file it uses (absolute paths)."""
        return self.root / "start.json"

    @property
    def survey(self) -> Path:
        """What was measured before the plan: rows, parameters, step time, label audit."""
        return self.root / "survey.json"

    @property
    def rows(self) -> Path:
        """Per training row: ``num_tokens``, ``num_supervised_tokens``, ``source`` (code)."""
        return self.root / "rows.npz"

    @property
    def order(self) -> Path:
        """The row ids in the order in which every arm draws them."""
        return self.root / "order.npy"

    @property
    def plan(self) -> Path:
        """The plan."""
        return self.root / "plan.json"

    @property
    def fingerprint(self) -> Path:
        """What the verdict is bound to."""
        return self.root / "fingerprint.json"

    @property
    def findings(self) -> Path:
        """Output of judging."""
        return self.root / "findings.jsonl"

    @property
    def result(self) -> Path:
        """Output of judging: gates and tables."""
        return self.root / "result.json"

    @property
    def verdict(self) -> Path:
        """Output of judging: the verdict."""
        return self.root / "verdict.json"

    @property
    def report(self) -> Path:
        """Projection: the report for people."""
        return self.root / "report.md"

    @property
    def figures(self) -> Path:
        """Projection: pictures."""
        return self.root / "figures"

    @property
    def tracking(self) -> Path:
        """Projection: which tracking run this pilot is."""
        return self.root / "tracking.json"

    @property
    def lock(self) -> Path:
        """Held by the pilot that works in this folder."""
        return self.root / "pilot.lock"

    def arm(self, name: str) -> ArmFolder:
        """The folder of an arm."""
        return ArmFolder(self.root / "arms" / name)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What an arm has to do. ``stop_step`` is the last step of the pilot's own record."""

    arm: str
    role: str
    variable: str
    value: str
    start_step: int
    stop_step: int
    cooldown_steps: int
    validations: Mapping[str, int]
    checkpoints: Mapping[str, int]
    module_path: str


@dataclass(frozen=True, kw_only=True)
class ArmView:
    """All that is known of one arm, joined over its attempts."""

    job: Job
    steps: tuple[StepRecord, ...]
    cooldown: tuple[StepRecord, ...]
    validations: tuple[ValidationRecord, ...]
    evidence: tuple[Evidence, ...]
    resources: tuple[Resource, ...]
    outcome: Outcome | None
    num_attempts: int

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
    """A whole pilot as read from its folder: the only input of judging, beside the gates."""

    config: Mapping[str, Any]
    plan: Plan
    survey: Mapping[str, Any]
    rows: RowTable
    fingerprint: Mapping[str, Any]
    arms: Mapping[str, ArmView]

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
    import yaml

    survey = read_json(folder.survey)
    arms = sorted(p for p in (root / "arms").glob("*") if (p / "job.json").is_file())
    return PilotView(
        config=yaml.safe_load(folder.config.read_text(encoding="utf-8")),
        plan=read_plan(read_json(folder.plan)),
        survey=survey,
        rows=load_rows(folder, survey),
        fingerprint=read_json(folder.fingerprint) if folder.fingerprint.is_file() else {},
        arms={path.name: load_arm(path) for path in arms},
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
    return ArmView(
        job=from_json(Job, read_json(folder.job)),
        steps=tuple(join_attempts(read_jsonl(folder.steps(n), StepRecord) for n in numbers)),
        cooldown=tuple(join_attempts(read_jsonl(folder.cooldown(n), StepRecord) for n in numbers)),
        validations=tuple(read_jsonl(folder.validations, ValidationRecord)),
        evidence=tuple(read_jsonl(folder.evidence, Evidence)),
        resources=tuple(read_jsonl(folder.resources, Resource)),
        outcome=from_json(Outcome, outcome) if outcome else None,
        num_attempts=attempts,
    )


def count_attempts(folder: ArmFolder) -> int:
    """How many attempts of an arm have started."""
    numbers = [int(path.name.split(".")[1]) for path in folder.root.glob("steps.*.jsonl")]
    return max(numbers, default=0)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; ``"NaN"`` and ``"Infinity"`` become floats again."""
    value = parse(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise FolderError(path, "is not a JSON object", remedy="the file is damaged; run again")
    return value
