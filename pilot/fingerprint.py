"""What a verdict is bound to: the run's configuration, code, data, package versions, world size.

A fingerprint says *which run* was piloted, not how: gates, tracking, launcher, folder and the
length of the pilot are not in it. It holds no absolute path, so that a checkout elsewhere has the
same one.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from pilot.folder import read_json
from pilot.jsonl import to_json
from pilot.run_code import code_of

FULL_HASH_BYTES = 1_000_000_000
_BLOCK_BYTES = 1 << 20
_NUM_SAMPLES = 64
_SECTIONS = ("recipe", "full_run", "optim", "batch", "precision", "engine")
_PILOT_KEYS = ("seed", "data_seed")
_PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "accelerate",
    "peft",
    "trl",
    "datasets",
    "bitsandbytes",
    "deepspeed",
    "flash-attn",
    "liger-kernel",
    "torchao",
)


def make_fingerprint(
    config_tree: Mapping[str, Any],
    module_path: Path,
    input_files: Sequence[Path],
    world_size: int,
    data_sets: Sequence[Mapping[str, Any]] = (),
    trainer: Mapping[str, Any] | None = None,
    imported: Iterable[str] = (),
    found: Mapping[str, Path] | None = None,
) -> dict[str, Any]:
    """The fingerprint of a run, as plain JSON values; ``commit`` is told and never compared.

    Args:
        config_tree: the resolved configuration.
        module_path: the recipe's Python file.
        input_files: the files that the recipe reads: data, weights, tokenizer.
        world_size: number of processes of the full run.
        data_sets: sets that no file holds, with ``name``, ``rows``, ``sha256`` and ``sampled``
            (``pilot/engines/hf/digests.py``); without a ``sha256`` only the rows are bound.
        trainer: what a Trainer says about its run (``engines/hf/run_facts.py``), where one trains.
        imported: further files of code, seen from the recipe's folder (``run_code.py``).
        found: where some of these lie, if not there.

    Raises:
        OSError: a file cannot be read.
    """
    code, commit = code_of(module_path, imported, found)
    parts: dict[str, Any] = {
        "config": _config(config_tree),
        "code": code,
        "data": sorted(
            (_file(path) for path in input_files), key=lambda f: (f["name"], f["sha256"])
        )
        + [dict(item) for item in data_sets],
        "packages": _packages(),
        "world_size": world_size,
    }
    if trainer:
        parts["trainer"] = dict(trainer)
    return {"hash": _digest(to_json(parts).encode())[:12], "commit": commit, **parts}


def surveyed_sets(path: Path) -> list[dict[str, Any]]:
    """What binds the sets of a survey (``survey.json``).

    A pilot that goes on compares them in every arm, where the data are at hand.
    """
    return bound_sets(read_json(path).get("data") or ())


def bound_sets(digests: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What of the digests of data sets (``engines/hf/digests.py``) a fingerprint holds."""
    return [{key: item[key] for key in ("name", "rows", "sha256", "sampled")} for item in digests]


def _config(tree: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {name: tree[name] for name in _SECTIONS if name in tree}
    if isinstance(recipe := kept.get("recipe"), Mapping):  # a checkpoint counts by its files alone
        kept["recipe"] = {key: recipe[key] for key in recipe if key != "resume_from"}
    pilot = tree.get("pilot")
    if isinstance(pilot, Mapping):
        kept |= {f"pilot.{key}": pilot[key] for key in _PILOT_KEYS if key in pilot}
    return dict(sorted(_flat(kept, "")))


def _flat(value: object, key: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        return [
            leaf
            for name, item in value.items()
            for leaf in _flat(item, f"{key}.{name}" if key else str(name))
        ]
    if isinstance(value, (list, tuple)):
        return [(key, [without_folder(item) for item in value])]
    return [(key, without_folder(value))]


def without_folder(value: object) -> object:
    """A path by its last part: the manifest says what is in the file, wherever it lies."""
    if isinstance(value, str) and os.sep in value:
        path = Path(value).expanduser()
        if path.is_absolute() or path.exists():
            return path.name
    return value


def _file(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    sampled = size > FULL_HASH_BYTES
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if sampled:
            digest.update(str(size).encode())
            last = size - _BLOCK_BYTES
            for index in range(_NUM_SAMPLES):
                file.seek(last * index // (_NUM_SAMPLES - 1))
                digest.update(file.read(_BLOCK_BYTES))
        else:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    return {"name": path.name, "bytes": size, "sha256": digest.hexdigest(), "sampled": sampled}


def _packages() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
