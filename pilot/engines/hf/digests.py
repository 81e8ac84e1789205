"""Digests of a Trainer's data sets: what a verdict and every arm are bound to.

A digest holds the number of rows and a SHA-256 over the content of a sample of them, in their
order: all rows up to ``ALL_ROWS``, else ``SPREAD_ROWS`` evenly spread ones with the first and the
last. It is the same in every process (``pilot/data/canonical.py``). A change of a row outside of
the sample is not seen; ``sampled`` says so. Rows that differ when they are read twice (random
augmentation) have no digest; ``note`` says so, and only their number is compared.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pilot.data.canonical import content_digest
from pilot.engines import seeds
from pilot.engines.hf.held_out import HeldOutRows
from pilot.engines.hf.validation import validation_sets

ALL_ROWS, SPREAD_ROWS = 2_000, 1_000
FEW_ROWS = 64
UNSTABLE = "its rows are not the same when they are read twice"
_QUICK_SECS = 5.0  # reading that long at the survey: an arm compares the few rows only


def digests(trainer: Any) -> list[dict[str, Any]]:
    """A digest of every set of ``trainer``: its training set, then its evaluation sets.

    Returns:
        For each: ``name``, ``rows`` (None: it has no length), ``sha256`` (None: see ``note``),
        ``sampled``, ``few_sha256`` (the same over at most ``FEW_ROWS`` rows), ``unknown`` (kinds
        of objects that are not taken by their content), ``note`` and ``read_secs``.
    """
    state = seeds.random_state()
    try:
        return [_digest(name, rows) for name, rows in data_sets(trainer).items()]
    finally:
        seeds.set_random_state(state)


def changed_sets(trainer: Any, surveyed: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for every set that is not the surveyed one; empty: the data are the same."""
    state = seeds.random_state()
    try:
        present = data_sets(trainer)
        lines = [
            f"{item['name']}: {line}"
            for item in surveyed
            for line in _changed(item, present.get(str(item["name"])))
        ]
    finally:
        seeds.set_random_state(state)
    known = {str(item["name"]) for item in surveyed}
    return lines + [f"{name}: was not there" for name in present if name not in known]


def data_sets(trainer: Any) -> dict[str, Any]:
    """The sets of ``trainer`` by name; the training set as the user gave it, columns and all."""
    train = trainer.train_dataset
    if train is None:  # a subclass that builds its own loader
        train = trainer.get_train_dataloader().dataset
    found = {"train_dataset": train}
    is_named = isinstance(trainer.eval_dataset, dict)
    for name, rows in validation_sets(trainer).items():
        if not isinstance(rows, HeldOutRows):
            found[f"eval_dataset.{name}" if is_named else "eval_dataset"] = rows
    return found


def sampled_rows(num_rows: int, most: int, spread: int) -> list[int]:
    """All rows up to ``most``, else ``spread`` evenly spread ones, the first and the last too."""
    if num_rows <= most:
        return list(range(num_rows))
    return sorted({int(row) for row in np.linspace(0, num_rows - 1, spread).round()})


def _digest(name: str, dataset: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "rows": _length(dataset),
        "sha256": None,
        "sampled": False,
        "few_sha256": None,
        "unknown": [],
        "note": "",
        "read_secs": 0.0,
    }
    if found["rows"] is None or not hasattr(dataset, "__getitem__"):
        return {**found, "note": "it has no rows that can be read by their number"}
    sample = sampled_rows(found["rows"], ALL_ROWS, SPREAD_ROWS)
    few = sampled_rows(found["rows"], FEW_ROWS, FEW_ROWS)
    unknown: set[str] = set()
    begun = time.perf_counter()
    try:
        whole = _sha256(dataset, sample, unknown)
        secs = time.perf_counter() - begun
        once = _sha256(dataset, few, unknown)
        again = _sha256(dataset, few, unknown)
        is_same = once == again and (
            secs > _QUICK_SECS or whole == _sha256(dataset, sample, unknown)
        )
    except Exception as error:  # the user's code: the survey tells of it where it is used
        return {**found, "note": f"a row cannot be read: {type(error).__name__}: {error}"[:300]}
    found |= {"unknown": sorted(unknown), "read_secs": secs}
    if not is_same:
        return {**found, "note": UNSTABLE}
    return {
        **found,
        "sha256": whole,
        "few_sha256": once,
        "sampled": len(sample) < found["rows"],
    }


def _changed(surveyed: Mapping[str, Any], dataset: Any) -> list[str]:
    if dataset is None:
        return ["is gone"]
    rows = _length(dataset)
    if rows != surveyed["rows"]:
        return [f"{surveyed['rows']} rows -> {rows}"]
    if surveyed["sha256"] is None or rows is None:
        return []
    is_quick = float(surveyed.get("read_secs") or 0.0) <= _QUICK_SECS
    limits = (ALL_ROWS, SPREAD_ROWS) if is_quick else (FEW_ROWS, FEW_ROWS)
    try:
        found = _sha256(dataset, sampled_rows(rows, *limits), set())
    except Exception as error:
        return [f"a row cannot be read: {type(error).__name__}: {error}"[:300]]
    if found == surveyed["sha256" if is_quick else "few_sha256"]:
        return []
    return [f"{rows} rows with other content"]


def _sha256(dataset: Any, rows: Sequence[int], unknown: set[str]) -> str:
    whole = hashlib.sha256()
    for row in rows:
        whole.update(row.to_bytes(8, "little"))
        whole.update(content_digest(dataset[row], unknown))
    return whole.hexdigest()


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None
