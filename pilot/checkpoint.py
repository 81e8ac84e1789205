"""The exact state of a run on disk: atomic, checksummed, pinned by reason, loaded without code.

A checkpoint is a folder ``step_NNNNNNNN/`` with ``state.pt`` (tensors and plain values; loaded with
``weights_only=True``, so it cannot execute code) and ``manifest.json`` (step, reasons, bytes,
sha256). It is written beside its place and renamed, so it is there as a whole or not at all.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilot.errors import CheckpointDamaged, DiskFull, is_disk_full
from pilot.jsonl import write_json

_STATE, _MANIFEST = "state.pt", "manifest.json"
_NAME = re.compile(r"^step_(\d{8})$")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint on disk; ``reasons`` are why it is pinned (none: only among the newest)."""

    path: Path
    step: int
    reasons: tuple[str, ...]
    num_bytes: int
    sha256: str


def save(
    folder: Path, step: int, state: Mapping[str, Any], *, reasons: tuple[str, ...]
) -> Checkpoint:
    """Write ``state`` as the checkpoint after ``step`` steps; replaces an older one of that step.

    Raises:
        DiskFull: the disk is full; nothing half-written stays behind.
    """
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    place, temporary = folder / f"step_{step:08d}", folder / f".tmp_{step:08d}_{os.getpid()}"
    replaced = folder / f".old_{step:08d}"
    shutil.rmtree(temporary, ignore_errors=True)  # of a killed writer with the same process id
    try:
        temporary.mkdir()
        with (temporary / _STATE).open("wb") as file:
            torch.save(dict(state), file)
            file.flush()
            os.fsync(file.fileno())
        num_bytes = (temporary / _STATE).stat().st_size
        digest = _sha256(temporary / _STATE)
        manifest = {
            "step": step,
            "reasons": list(reasons),
            "num_bytes": num_bytes,
            "sha256": digest,
        }
        write_json(temporary / _MANIFEST, manifest)
        shutil.rmtree(replaced, ignore_errors=True)
        if place.exists():
            place.rename(replaced)
        temporary.rename(place)
        shutil.rmtree(replaced, ignore_errors=True)
    except (OSError, RuntimeError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _as_disk_full(folder, error) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Checkpoint(path=place, step=step, reasons=reasons, num_bytes=num_bytes, sha256=digest)


def load(checkpoint: Checkpoint) -> dict[str, Any]:
    """Read a checkpoint's state onto the CPU after checking its checksum.

    Raises:
        CheckpointDamaged: the file is missing, changed, or holds anything but tensors and values.
    """
    import torch

    path = checkpoint.path / _STATE
    try:
        if _sha256(path) != checkpoint.sha256:
            raise CheckpointDamaged(path, "does not match its checksum")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except CheckpointDamaged:
        raise
    except Exception as error:
        raise CheckpointDamaged(path, f"cannot be read: {error}") from error
    if not isinstance(state, dict):
        raise CheckpointDamaged(path, "does not hold a state")
    return state


def find(folder: Path) -> list[Checkpoint]:
    """All complete checkpoints in ``folder``, oldest step first; half-written ones are not seen."""
    for old in folder.glob(".old_*") if folder.is_dir() else ():
        place = folder / f"step_{old.name.removeprefix('.old_')}"
        if not place.exists():  # the writer was killed between its two renames
            old.rename(place)
    found = []
    for path in sorted(folder.glob("step_*")) if folder.is_dir() else []:
        if not _NAME.match(path.name):
            continue
        try:
            data = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
            found.append(
                Checkpoint(
                    path=path,
                    step=int(data["step"]),
                    reasons=tuple(data["reasons"]),
                    num_bytes=int(data["num_bytes"]),
                    sha256=str(data["sha256"]),
                )
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def load_newest(
    folder: Path, *, at_most_step: int | None = None
) -> tuple[Checkpoint, dict[str, Any]] | None:
    """The newest checkpoint that can be read, with its state; damaged ones are passed over.

    ``at_most_step``: later ones are passed over too (their records were lost).
    """
    for checkpoint in reversed(find(folder)):
        if at_most_step is not None and checkpoint.step > at_most_step:
            continue
        try:
            return checkpoint, load(checkpoint)
        except CheckpointDamaged:
            continue
    return None


def pin(checkpoint: Checkpoint, reason: str) -> Checkpoint:
    """Add a reason to keep a checkpoint; pinned ones are never pruned."""
    if reason in checkpoint.reasons:
        return checkpoint
    reasons = (*checkpoint.reasons, reason)
    manifest = {
        "step": checkpoint.step,
        "reasons": list(reasons),
        "num_bytes": checkpoint.num_bytes,
        "sha256": checkpoint.sha256,
    }
    write_json(checkpoint.path / _MANIFEST, manifest)
    return Checkpoint(
        path=checkpoint.path,
        step=checkpoint.step,
        reasons=reasons,
        num_bytes=checkpoint.num_bytes,
        sha256=checkpoint.sha256,
    )


def prune(folder: Path, *, keep_newest: int) -> None:
    """Delete unpinned checkpoints but the newest ones, and leftovers of killed writers."""
    loose = [checkpoint for checkpoint in find(folder) if not checkpoint.reasons]
    for checkpoint in loose[: max(0, len(loose) - keep_newest)]:
        shutil.rmtree(checkpoint.path, ignore_errors=True)
    for leftover in (*folder.glob(".tmp_*"), *folder.glob(".old_*")):
        shutil.rmtree(leftover, ignore_errors=True)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _as_disk_full(folder: Path, error: OSError | RuntimeError) -> Exception:
    """Torch's zip writer reports a full disk as a RuntimeError and hides the OSError behind it."""
    if isinstance(error, OSError):
        return DiskFull(folder, error) if is_disk_full(error) else error
    hidden = error.__context__
    while hidden is not None and not isinstance(hidden, OSError):
        hidden = hidden.__context__
    text = str(error).lower()
    writer = "unexpected pos" in text or "failed writing" in text or "write_end_of_file" in text
    if isinstance(hidden, OSError):
        return _as_disk_full(folder, hidden)
    if writer:
        return DiskFull(folder, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    return error
