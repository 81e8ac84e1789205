"""Noise floors kept between pilots: the same training need not be replicated twice.

A floor is found again only for the same recipe, configuration (but the seed), data, code, package
versions, length of the pilot, device and number of threads. Reading never
fails a pilot: what cannot be used is measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pilot.compare.noise import stored_floor
from pilot.config import Config
from pilot.jsonl import to_json, write_json

_VERSION = 2


def store_key(
    fingerprint: Mapping[str, Any],
    config: Config,
    *,
    device: str = "",
    num_threads: int | None = None,
) -> str:
    """What a floor is valid for, as 16 hexadecimal digits.

    Args:
        fingerprint: of the run.
        config: the validated configuration.
        device: that the arms run on; the rounding of sums, part of the noise, depends on it.
        num_threads: CPU threads of an arm, for the same reason; None: torch's choice.
    """
    run = {k: v for k, v in (fingerprint.get("config") or {}).items() if k != "pilot.seed"}
    length = config.pilot
    parts = {
        "version": _VERSION,
        "config": run,
        "code": fingerprint.get("code"),
        "data": fingerprint.get("data"),
        "packages": fingerprint.get("packages"),
        "world_size": fingerprint.get("world_size"),
        "device": device,
        "num_threads": num_threads,
        "pilot": [
            length.min_peak_steps,
            length.cooldown_steps,
            length.validation_rows,
            length.data,
        ],
    }
    return hashlib.sha256(to_json(parts).encode()).hexdigest()[:16]


def find_floor(folder: Path, recipe: str, key: str) -> dict[str, Any] | None:
    """The stored floor, or None: there is none, or it cannot be read."""
    path = _path(folder, recipe, key)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    usable = isinstance(data, dict) and data.get("key") == key and "sd_validation" in data
    return data if usable else None


def keep_floor(folder: Path, recipe: str, key: str, floor: Mapping[str, Any]) -> Path:
    """Store a measured floor in the place of an older one. Raises ``OSError``, ``DiskFull``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(folder, recipe, key)
    write_json(path, {"key": key, "recipe": recipe, **floor})
    return path


def floor_for(
    config: Config, fingerprint: Mapping[str, Any], survey: Mapping[str, Any], cwd: Path
) -> dict[str, Any] | None:
    """The stored floor that replaces a pilot's replicas, or None; ``cwd`` is where it began."""
    if config.arms.noise_dir is None or not config.arms.num_replicas:
        return None
    key = key_for(config, fingerprint, survey)
    found = find_floor(cwd / config.arms.noise_dir, str(config.recipe["name"]), key)
    return found if found is not None and stored_floor(found) is not None else None


def key_for(config: Config, fingerprint: Mapping[str, Any], survey: Mapping[str, Any]) -> str:
    """The key of a surveyed pilot: threads and device change the last digits of every sum."""
    return store_key(
        fingerprint,
        config,
        device=str(survey.get("device")),
        num_threads=survey.get("num_threads_per_arm"),
    )


def _path(folder: Path, recipe: str, key: str) -> Path:
    return folder / f"{recipe}-{key}.json"
