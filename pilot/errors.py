"""One class per failure, carrying its data; the exit code of each.

Exit codes are an API: 0 GO, 1 pilot crashed, 2 configuration or usage error, 3 NO-GO,
4 INCONCLUSIVE. A fault in the recipe is never an error of pilot: it is an outcome (see
``RecipeFailure``) and becomes a NO-GO.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """What the shell sees. Frozen by ``tests/cli/test_public_surface.py``."""

    GO = 0
    CRASH = 1
    USAGE = 2
    NO_GO = 3
    INCONCLUSIVE = 4


class PilotError(Exception):
    """Base of every failure that pilot explains instead of showing a traceback."""

    exit_code: ExitCode = ExitCode.CRASH


class UsageError(PilotError):
    """The command line, the configuration or the user's files are wrong (exit code 2)."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One mistake in the configuration: which key, what was given, the rule, the remedy."""

    key: str
    value: str
    rule: str
    remedy: str

    def __str__(self) -> str:
        given = f" = {self.value}" if self.value else ""
        return f"{self.key}{given}\n    rule:   {self.rule}\n    remedy: {self.remedy}"


class ConfigError(UsageError):
    """All mistakes of a configuration at once."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        count = len(self.mistakes)
        head = f"{count} mistake{'s' if count != 1 else ''} in the configuration:"
        super().__init__("\n".join([head, *(f"  {mistake}" for mistake in self.mistakes)]))


class PlanRefused(UsageError):
    """The pilot cannot cover what it must within the stated budget."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("\n".join(["the plan is refused:", *(f"  {r}" for r in self.reasons)]))


class LogError(UsageError):
    """A file is not a training log that can be read: what was looked for, and what was found."""

    def __init__(self, path: Path | str, what: str, *, remedy: str) -> None:
        self.path, self.what = str(path), what
        super().__init__(f"{path}: {what}\n    remedy: {remedy}")


class DataError(UsageError):
    """A file of the user's data cannot be used; says which file, line and row."""

    def __init__(
        self, path: Path | str, what: str, *, remedy: str, line: int | None = None
    ) -> None:
        self.path, self.line, self.what = str(path), line, what
        place = f"{path}:{line}" if line is not None else str(path)
        super().__init__(f"{place}: {what}\n    remedy: {remedy}")


class ModelFolderError(UsageError):
    """A model folder lacks something that is needed to load it."""

    def __init__(self, path: Path | str, what: str, *, remedy: str) -> None:
        self.path, self.what = str(path), what
        super().__init__(f"{path}: {what}\n    remedy: {remedy}")


class FolderError(UsageError):
    """An output folder cannot be used: not writable, in use, or not what was expected."""

    def __init__(self, path: Path | str, what: str, *, remedy: str) -> None:
        self.path, self.what = str(path), what
        super().__init__(f"{path}: {what}\n    remedy: {remedy}")


# Packages that a user's script may import, and the extra of pilot's that has them.
EXTRAS = {
    "transformers": "transformers",
    "accelerate": "transformers",
    "peft": "lora",
    "trl": "trl",
    "datasets": "trl",
}


class MissingExtra(UsageError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, extra: str, needed_by: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(
            f"{needed_by} needs the package {package!r}, which is not installed\n"
            f"    remedy: pip install 'pilot-run[{extra}]'"
        )


def is_disk_full(error: OSError) -> bool:
    """Whether a disk, or a quota, is full; numpy says so in words and gives no number."""
    in_words = error.errno is None and "requested and" in str(error) and "written" in str(error)
    return in_words or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskFull(PilotError):
    """The disk is full; what was measured until then is kept."""

    def __init__(self, path: Path | str, cause: OSError) -> None:
        self.path = str(path)
        super().__init__(
            f"{path}: {cause.strerror or cause} while writing\n"
            "    what was measured until then is kept\n"
            "    remedy: free some space, then: python -m pilot resume DIR"
        )


class ArmCrashed(PilotError):
    """An arm ended without a completion marker: pilot's own fault, or the machine's."""

    def __init__(self, arm: str, reason: str, log: Path | str) -> None:
        self.arm, self.reason, self.log = arm, reason, str(log)
        super().__init__(
            f"arm {arm!r} ended without a result: {reason}\n"
            f"    log:    {log}\n"
            "    remedy: read the log, then: python -m pilot resume DIR"
        )


class CheckpointDamaged(PilotError):
    """A checkpoint does not match its checksum or cannot be read."""

    def __init__(self, path: Path | str, what: str) -> None:
        self.path, self.what = str(path), what
        super().__init__(f"{path}: {what}")


class FullRunRefused(PilotError):
    """A full run has no GO of its own, so it is not started: what is missing, or what differs."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.INCONCLUSIVE) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class RecipeFailure(Exception):
    """The recipe's code raised, or memory ran out: an outcome of the run, not a crash of pilot.

    ``where`` is one of ``build``, ``collate``, ``forward``, ``backward``, ``optimizer``,
    ``validation``; ``row_ids`` are the rows that were being worked on.
    """

    def __init__(
        self,
        where: str,
        *,
        step: int | None,
        row_ids: Sequence[int],
        error: BaseException,
        out_of_memory: bool,
        traceback_text: str,
    ) -> None:
        self.where, self.step, self.row_ids = where, step, tuple(row_ids)
        self.error, self.out_of_memory = error, out_of_memory
        self.traceback_text = traceback_text
        super().__init__(f"{where} at step {step}: {type(error).__name__}: {error}")
