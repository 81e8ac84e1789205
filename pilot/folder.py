"""The folder of a pilot: where each file lies (``pilot/view.py`` reads it back)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pilot.errors import FolderError
from pilot.jsonl import parse

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
    def absence(self) -> Path:
        """Why an arm has no outcome: its status (lost, not run) and the reason."""
        return self.root / "absence.json"

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

    def extension(self, attempt: int) -> Path:
        """The step records of one attempt beyond the end of the peak, for an undecided event."""
        return self.root / f"extension.{attempt:03d}.jsonl"


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
    def held_out(self) -> Path:
        """The training rows that are held out for validation, where the user has no such set."""
        return self.root / "held_out.npy"

    @property
    def own_order(self) -> Path:
        """The row ids that the user's own loader draws, where an engine leaves them to it."""
        return self.root / "own_order.npy"

    @property
    def own_rates(self) -> Path:
        """The rates that the user's own scheduler plans: float64 [parameter groups, steps]."""
        return self.root / "own_rates.npy"

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
    def noise(self) -> Path:
        """A stored noise floor that replaces the replicas of this pilot."""
        return self.root / "noise.json"

    @property
    def others_needed(self) -> Path:
        """Whether ``arms.when=if_not_go`` found the other arms needed: decided once."""
        return self.root / "others_needed.json"

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

    def taken_names(self) -> list[str]:
        """What of everything that a pilot writes here is there already; its lock apart."""
        names = [n for n, value in vars(type(self)).items() if isinstance(value, property)]
        files = [getattr(self, name) for name in names if name != "lock"]
        return [path.name for path in (*files, self.root / "arms") if os.path.exists(path)]

    def arm(self, name: str) -> ArmFolder:
        """The folder of an arm."""
        return ArmFolder(self.root / "arms" / name)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What an arm has to do. ``stop_step`` is the last step of the pilot's own record.

    ``role``: baseline, arm or replica. ``title`` is its name for people (``lr x1/3``), ``order``
    its place in every list. ``variable`` is the one key that differs from the baseline, ``value``
    and ``baseline_value`` its two values as YAML text; ``follows`` the keys that change with it by
    interpolation. ``fork_step``: the baseline's checkpoint that it starts from (null: from the
    start); up to there its records are the baseline's. ``first_difference_step``: the first step
    at which it may differ (null: its first). ``may_end_early``: it may end as soon as its
    difference is decided.
    """

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
    title: str = ""
    order: int = 0
    baseline_value: str = ""
    follows: Mapping[str, str] = field(default_factory=dict)
    fork_step: int | None = None
    first_difference_step: int | None = None
    may_end_early: bool = False


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
