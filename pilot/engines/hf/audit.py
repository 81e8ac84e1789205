"""The label audit of a Trainer's set, chunk by chunk: a large set is never in memory as a whole."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pilot.data.audit import MAX_ROW_IDS, audit_rows
from pilot.engines import seeds
from pilot.engines.hf.columns import CHUNK_ROWS, Columns, column_chunks, is_columnar
from pilot.engines.hf.digests import sampled_rows
from pilot.engines.hf.facts import MOST_SECS, SAMPLE_ROWS
from pilot.engines.hf.failed_rows import in_audit, read_rows

_WRONG = ("too_long", "bad_input_ids", "bad_label_ids", "no_labels")
_PROBED_ROWS = 16


def audit_set(
    name: str,
    dataset: Any,
    *,
    vocab_size: int | None,
    max_positions: int | None,
    most_secs: float = MOST_SECS,
    known: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """``pilot/data/audit.py`` over a set with a length.

    Rows that would take longer than ``most_secs`` to read are audited on an even sample:
    ``num_rows_checked`` says how many were. Row ids are those of the set. Rows that cannot be read
    are counted as ``unreadable``, with those that are ``known`` to fail.
    """
    state = seeds.random_state()
    failed: dict[int, str] = {}
    try:
        parts = [
            (rows, audit_rows(name, examples, vocab_size=vocab_size, max_positions=max_positions))
            for rows, examples in _chunks(dataset, most_secs, failed)
        ]
    finally:
        seeds.set_random_state(state)
    return in_audit(_joined(name, len(dataset), parts), {**failed, **dict(known or {})})


def _chunks(
    dataset: Any, most_secs: float, failed: dict[int, str]
) -> Iterator[tuple[Sequence[int], list[Any]]]:
    """Row ids and their examples; ``failed`` takes those that cannot be read."""
    if is_columnar(dataset):
        if {"input_ids", "labels"} <= set(dataset.column_names):
            begin = 0
            for columns in column_chunks(dataset):
                examples = _examples(columns)
                yield range(begin, begin + len(examples)), examples
                begin += len(examples)
        return
    num_rows, begun = len(dataset), time.perf_counter()
    probed = sampled_rows(num_rows, _PROBED_ROWS, _PROBED_ROWS)
    read_rows(dataset, probed, failed)
    secs = (time.perf_counter() - begun) / max(1, len(probed)) * num_rows
    is_long = secs > most_secs
    every = iter(sampled_rows(num_rows, SAMPLE_ROWS, SAMPLE_ROWS) if is_long else range(num_rows))
    while rows := list(itertools.islice(every, CHUNK_ROWS)):
        yield rows, read_rows(dataset, rows, failed)


def _examples(columns: Columns) -> list[dict[str, Any]]:
    """Rows of the two columns that are audited; rows without them where they are of other kinds."""
    if not {"input_ids", "labels"} <= set(columns):
        return [{}] * max((len(column.lengths) for column in columns.values()), default=0)
    parts = {}
    for name in ("input_ids", "labels"):
        column = columns[name]
        ends = column.lengths.cumsum().tolist()
        begins = [0, *ends[:-1]]
        parts[name] = [column.values[a:b] for a, b in zip(begins, ends, strict=True)]
    return [
        {"input_ids": ids, "labels": labels}
        for ids, labels in zip(parts["input_ids"], parts["labels"], strict=True)
    ]


def _joined(
    name: str, num_rows: int, parts: Sequence[tuple[Sequence[int], dict[str, Any]]]
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "set": name,
        "num_rows": num_rows,
        "num_rows_checked": sum(part["num_rows_checked"] for _, part in parts),
        "longest_tokens": max((part["longest_tokens"] for _, part in parts), default=0),
    }
    for key in _WRONG:
        result[f"num_{key}"] = sum(part[f"num_{key}"] for _, part in parts)
        ids = [int(rows[place]) for rows, part in parts for place in part[key]]
        result[key] = ids[:MAX_ROW_IDS]
    return result
