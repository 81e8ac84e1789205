"""Audits of what will be trained on: the order of sources, and the ids and labels of every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

IGNORED = -100
"""The label of a position without loss (``torch.nn.functional.cross_entropy``)."""

MAX_ROW_IDS = 20
BLOCKED_PROBABILITY = 0.001

Ints = npt.NDArray[np.int64]


def order_audit(
    source_codes_in_order: npt.ArrayLike, *, row_ids: npt.ArrayLike | None = None
) -> dict[str, Any]:
    """Whether sources come in blocks, against what a random permutation would give.

    Args:
        source_codes_in_order: source code of each draw.
        row_ids: row id of each draw. With it only the first epoch is looked at (until a row comes
            again), and the second is compared with it.

    Returns:
        ``num_rows`` and ``num_sources`` (of the first epoch), ``longest_run`` of one source and its
        ``longest_run_source`` (code), ``expected_longest_run``, ``longest_run_bound``: a random
        permutation stays below it with at least 99.9 % (exact expectation of runs, union bound),
        ``blocked``: the bound is reached, ``second_epoch_differs`` (null: not seen). An empty order
        and a single source are not blocked.
    """
    codes = np.asarray(source_codes_in_order, dtype=np.int64)
    differs: bool | None = None
    if row_ids is not None:
        ids = np.asarray(row_ids, dtype=np.int64)
        size = len(np.unique(ids))
        if len(ids) >= 2 * size > 0:
            differs = not np.array_equal(ids[:size], ids[size : 2 * size])
        codes = codes[:size]
    length, code = _longest_run(codes)
    expected, bound = _random_longest_run(np.unique(codes, return_counts=True)[1])
    return {
        "num_rows": len(codes),
        "num_sources": len(np.unique(codes)),
        "longest_run": length,
        "longest_run_source": code,
        "expected_longest_run": expected,
        "longest_run_bound": bound,
        "blocked": len(codes) > 0 and length >= bound,
        "second_epoch_differs": differs,
    }


def _longest_run(codes: Ints) -> tuple[int, int | None]:
    if not len(codes):
        return 0, None
    starts = np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1])
    lengths = np.diff(np.concatenate([starts, [len(codes)]]))
    best = int(np.argmax(lengths))
    return int(lengths[best]), int(codes[starts[best]])


def _random_longest_run(counts: Ints) -> tuple[float, int]:
    """Expected longest run of a random permutation, and the length it reaches with <= 0.1 %.

    The chance that L given neighbours are all of a source with m of n rows is
    q = prod_{j<L} (m - j)/(n - j); a run of at least L starts at the first place or after another
    source, so their expected number is q * (1 + n - m). Its sum over sources bounds the chance of
    such a run (Markov); 1 - exp(-sum) approximates it (Poisson, Arratia and others 1989).
    """
    total = int(counts.sum())
    chance = np.ones(len(counts))
    expected, length = 0.0, 0
    while length < total:
        chance = chance * np.maximum(counts - length, 0) / (total - length)
        num_runs = float((chance * (1 + total - counts)).sum())
        length += 1
        if num_runs <= BLOCKED_PROBABILITY:
            return expected, length
        expected += 1.0 if num_runs >= 1.0 and len(counts) == 1 else float(-np.expm1(-num_runs))
    return expected, length + 1


def audit_rows(
    name: str,
    examples: Sequence[Any],
    *,
    vocab_size: int | None,
    max_positions: int | None,
) -> dict[str, Any]:
    """Count rows of one set whose ids, labels or length cannot be right.

    Checked are examples with one-dimensional integer sequences ``input_ids`` and ``labels`` (keys
    or attributes); others only count in ``num_rows``. Negative ids are always wrong (for labels:
    but the ignored value, which is -100 unless all negative labels are one other constant); ids
    from ``vocab_size`` on and rows over ``max_positions`` are counted only where those are known.
    The label of the first position is predicted by nothing, so a row whose other labels are all
    ignored has no labels. Lists of row ids hold the first ``MAX_ROW_IDS``.
    """
    found = [(row, pair) for row, e in enumerate(examples) if (pair := _sequences(e)) is not None]
    rows = np.array([row for row, _ in found], dtype=np.int64)
    inputs, input_owner = _concatenate([pair[0] for _, pair in found])
    labels, label_owner = _concatenate([pair[1] for _, pair in found])
    shifted, shifted_owner = _concatenate([pair[1][1:] for _, pair in found])
    lengths = np.bincount(input_owner, minlength=len(rows))
    top = np.iinfo(np.int64).max if vocab_size is None else vocab_size
    bad_inputs = (inputs < 0) | (inputs >= top)
    ignored = _ignored_value(labels)
    bad_labels = ((labels < 0) & (labels != ignored)) | (labels >= top)
    supervised = np.bincount(shifted_owner[shifted != ignored], minlength=len(rows))
    result: dict[str, Any] = {"set": name, "num_rows": len(examples), "num_rows_checked": len(rows)}
    result["longest_tokens"] = int(lengths.max(initial=0))
    wrong = {
        "too_long": np.flatnonzero(lengths > (max_positions or np.iinfo(np.int64).max)),
        "bad_input_ids": np.unique(input_owner[bad_inputs]),
        "bad_label_ids": np.unique(label_owner[bad_labels]),
        "no_labels": np.flatnonzero(supervised == 0),
    }
    for key, places in wrong.items():
        result[f"num_{key}"] = len(places)
        result[key] = rows[places[:MAX_ROW_IDS]].tolist()
    return result


def _ignored_value(labels: Ints) -> int:
    """-100, or the only negative label there is (some code bases ignore -1)."""
    negative = np.unique(labels[labels < 0])
    return int(negative[0]) if len(negative) == 1 else IGNORED


def _sequences(example: Any) -> tuple[Ints, Ints] | None:
    pair = []
    for key in ("input_ids", "labels"):
        value = example.get(key) if isinstance(example, Mapping) else getattr(example, key, None)
        if value is None:
            return None
        try:
            array = np.asarray(value)
        except ValueError:  # rows of unequal length: not one sequence
            return None
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            return None
        pair.append(array.astype(np.int64))
    return pair[0], pair[1]


def _concatenate(arrays: Sequence[Ints]) -> tuple[Ints, Ints]:
    """All values in one array, and for each the place of its array in ``arrays``."""
    if not arrays:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    owner = np.repeat(np.arange(len(arrays)), [len(array) for array in arrays])
    return np.concatenate(arrays), owner
