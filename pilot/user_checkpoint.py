"""What lies at ``recipe.resume_from``: recognised by names and headers, without torch.

Two kinds can be started from: the folder that a Hugging Face Trainer saves (``checkpoint-N``), and,
for the native engine, weights and states in torch or safetensors files. What belongs to a sharded
run (DeepSpeed, FSDP, torch.distributed.checkpoint, Megatron) is recognised and refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pilot.checkpoint_files import TORCH_SUFFIXES, damage_of, missing_shards
from pilot.errors import ConfigError, Mistake

KEY = "recipe.resume_from"
TRAINER_STATE, MANIFEST = "trainer_state.json", "manifest.json"
TRAINER, WEIGHTS, TORCH = "trainer", "weights", "torch"
# In the order in which a Trainer looks for them.
SINGLE = ("model.safetensors", "pytorch_model.bin")
INDEXED = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
_OPTIMIZERS = ("optimizer.pt", "optimizer.bin")
_ALSO = ("scheduler.pt", "scaler.pt")


@dataclass(frozen=True, kw_only=True)
class UserCheckpoint:
    """A checkpoint of the user's, as far as it can be told without torch.

    ``kind``: ``trainer`` (a Trainer's folder), ``weights`` (a folder with weights under the names
    of Hugging Face, no Trainer's state), ``torch`` (one torch file). ``step`` is None where only
    the torch file may know it. ``saved`` is what ``trainer_state.json`` says of the run.
    """

    path: Path
    kind: str
    step: int | None
    weights: tuple[Path, ...]
    optimizer: Path | None = None
    saved: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder in which its files lie."""
        return self.path if self.path.is_dir() else self.path.parent

    @property
    def is_adapter(self) -> bool:
        """Whether it has an adapter's weights (LoRA) and no others."""
        return bool(self.weights) and all(f.name in ADAPTERS for f in self.weights)

    @property
    def num_processes(self) -> int:
        """Processes of the run that saved it, by their random states; 1: one, or unknown."""
        return max(1, len(list(self.folder.glob("rng_state_*.pth"))))


def resume_path(recipe: Mapping[str, Any], start: Path | None = None) -> Path | None:
    """Where the run starts from, if it does; relative paths begin at ``start`` (None: here)."""
    given = recipe.get("resume_from")
    return None if given is None else (start or Path.cwd()) / Path(str(given)).expanduser()


def files_of(recipe: Mapping[str, Any], start: Path | None = None) -> list[Path]:
    """The checkpoint's files, for the fingerprint; none without one.

    A torch file stands for itself; of a folder everything counts, in sub-folders too.
    """
    path = resume_path(recipe, start)
    if path is None or not path.exists():
        return []
    return [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())


def look(path: Path) -> UserCheckpoint:
    """Recognise the checkpoint at ``path``.

    Raises:
        ConfigError: there is none that can be started from; with what was looked for, or with
            every file that is damaged.
    """
    if not path.exists():
        raise wrong(path, f"there is nothing at {path.absolute()}", _neighbours(path.parent))
    found = _folder(path) if path.is_dir() else _file(path)
    files = [*found.weights, *([found.optimizer] if found.optimizer else [])]
    if found.kind == TRAINER:
        files += [p for p in sorted(path.iterdir()) if p.name in _ALSO or _is_random_state(p)]
    lines = [f"{f.name} {what}" for f in files if (what := damage_of(f))]
    if lines:
        raise wrong(path, f"damaged: {'; '.join(lines)}", "copy it again, or take an earlier one")
    return found


def _is_random_state(path: Path) -> bool:
    return path.name.startswith("rng_state") and path.suffix == ".pth"


def _file(path: Path) -> UserCheckpoint:
    if path.name == TRAINER_STATE or path.name in INDEXED:
        raise wrong(path, "is one file of a checkpoint", f"give its folder: {path.parent}")
    if path.suffix == ".distcp" or path.name.endswith("_states.pt"):
        raise wrong(path, "is one process's part of a sharded checkpoint", _MERGE)
    kind = WEIGHTS if path.suffix == ".safetensors" else TORCH
    return UserCheckpoint(path=path, kind=kind, step=None, weights=(path,))


def _folder(path: Path) -> UserCheckpoint:
    names = {item.name for item in path.iterdir()}
    if not names:
        raise wrong(path, "is an empty folder", _neighbours(path.parent))
    weights = _weights(path)
    sharded = _sharded(path, names)
    if sharded and not weights:
        raise wrong(path, f"is sharded: {sharded}", _MERGE)
    if TRAINER_STATE in names:
        saved = _trainer_state(path / TRAINER_STATE)
        if not weights and not _adapter_folders(path):
            raise wrong(path, f"has {TRAINER_STATE} and no weights", f"looked for {_LOOKED}")
        return UserCheckpoint(
            path=path,
            kind=TRAINER,
            step=saved["global_step"],
            weights=weights,
            optimizer=_first(path, _OPTIMIZERS),
            saved=saved,
        )
    if weights:
        found = _first(path, _OPTIMIZERS)
        return UserCheckpoint(path=path, kind=WEIGHTS, step=None, weights=weights, optimizer=found)
    torch_files = sorted(p for p in path.iterdir() if p.suffix in TORCH_SUFFIXES)
    if len(torch_files) == 1:
        step = _manifest_step(path)
        return UserCheckpoint(path=path, kind=TORCH, step=step, weights=(torch_files[0],))
    if torch_files:
        shown = ", ".join(p.name for p in torch_files[:4])
        rule = f"has {len(torch_files)} torch files and none is known by its name: {shown}"
        raise wrong(path, rule, "give one of them")
    raise wrong(path, f"is no checkpoint: looked for {_LOOKED}", _neighbours(path))


_LOOKED = f"{TRAINER_STATE}, {', '.join((*SINGLE, *INDEXED, *ADAPTERS))}, one torch file"
_MERGE = (
    "bring it together first: zero_to_fp32.py (DeepSpeed), accelerate merge-weights (FSDP), "
    "torch.distributed.checkpoint.format_utils.dcp_to_torch_save; then give that file"
)


def _weights(path: Path) -> tuple[Path, ...]:
    """The weight files that are there, as a Trainer would choose them."""
    if (single := _first(path, SINGLE)) is not None:
        return (single,)
    if (adapter := _first(path, ADAPTERS)) is not None:
        return (adapter,)
    if (index := _first(path, INDEXED)) is None:
        return ()
    shards, missing = missing_shards(index)
    if missing:
        shown = ", ".join(missing[:3])
        rule = f"{index.name} names {len(shards)} files, {len(missing)} are missing: {shown}"
        raise wrong(path, rule, "copy the folder again, or take an earlier one")
    return tuple(path / name for name in shards)


def _adapter_folders(path: Path) -> list[Path]:
    return [p for p in path.iterdir() if p.is_dir() and _first(p, ADAPTERS) is not None]


def _sharded(path: Path, names: set[str]) -> str:
    """What says that the folder is one of several processes' states; empty: nothing does."""
    folders = [p for p in path.iterdir() if p.is_dir()]
    for folder in folders:
        if folder.name.startswith("global_step"):
            return f"{folder.name}/ is DeepSpeed's"
        if folder.name.startswith("pytorch_model_fsdp"):
            return f"{folder.name}/ is FSDP's"
        if any(folder.glob("*.distcp")):
            return f"{folder.name}/ is torch.distributed.checkpoint's"
        if folder.name.startswith("mp_rank_"):
            return f"{folder.name}/ is Megatron's"
    if ".metadata" in names or any(name.endswith(".distcp") for name in names):
        return "its .distcp files are torch.distributed.checkpoint's"
    if any(name.endswith("_optim_states.pt") for name in names):
        return "its *_optim_states.pt are DeepSpeed's"
    if "pytorch_model_fsdp.bin" in names:
        return "pytorch_model_fsdp.bin is FSDP's"
    return "latest_checkpointed_iteration.txt" * ("latest_checkpointed_iteration.txt" in names)


def sharded_optimizer(checkpoint: UserCheckpoint) -> str:
    """Which part of another kind of run holds the optimizer's state; empty: none is seen."""
    folder = checkpoint.folder
    found = _sharded(folder, {item.name for item in folder.iterdir()})
    inner = [p.name for p in folder.iterdir() if p.is_dir() and p.name.startswith("optimizer_")]
    return found or (f"{inner[0]}/ is FSDP's" if inner else "")


def _trainer_state(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        step = data["global_step"]
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise ValueError(f"global_step is {step!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        rule = f"{path.name} must say global_step: {type(error).__name__}: {error}"
        raise wrong(path.parent, rule, "copy it again, or take an earlier one") from error
    kept = ("global_step", "epoch", "max_steps", "num_train_epochs", "train_batch_size")
    return {key: data.get(key) for key in kept}


def _manifest_step(path: Path) -> int | None:
    """The step of one of pilot's own states."""
    try:
        return int(json.loads((path / MANIFEST).read_text(encoding="utf-8"))["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _neighbours(folder: Path) -> str:
    """The checkpoints that lie in ``folder``, the newest last."""
    if not folder.is_dir():
        return "relative paths start where pilot runs"
    found = [p for p in folder.glob("checkpoint-*") if p.name[11:].isdigit()]
    names = [p.name for p in sorted(found, key=lambda p: int(p.name[11:]))]
    if not names:
        return "relative paths start where pilot runs; give checkpoint-N, or a torch file"
    return f"in {folder} lie: {', '.join(names[-4:])}"


def wrong(path: Path, rule: str, remedy: str) -> ConfigError:
    """One mistake of ``recipe.resume_from``."""
    return ConfigError([Mistake(key=KEY, value=str(path), rule=rule, remedy=remedy)])
