"""The source of a Trainer's rows: a ``source`` column, also one that the Trainer takes away.

A Trainer drops the columns that its model does not take before a row reaches the collator, so the
column is read from the set that the user gave, at the same row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pilot.data.canonical import content_digest
from pilot.engines.hf.digests import sampled_rows

COLUMN, UNNAMED = "source", "train"
UNREAD = "unread"  # rows that are not read, because reading all takes too long
MAX_SOURCES = 1_000  # more are no sources but names of single documents
_COMPARED_ROWS = 8
_MAX_CHARS = 200


def sources_of(trainer: Any, dataset: Any, named: Mapping[int, str]) -> list[str]:
    """The source of every row of ``dataset``, the training loader's; ``train`` where it has none.

    Args:
        trainer: the Trainer.
        dataset: what its training loader draws from.
        named: the sources of rows that were read one by one, for a set without columns; a row that
            was not read is ``unread`` where others name one.
    """
    found = source_column(trainer, dataset)
    if found is None:
        has_sources = any(name != UNNAMED for name in named.values())
        found = [UNREAD if has_sources else UNNAMED] * len(dataset)
        for row, name in named.items():
            found[row] = name
    return found if len(set(found)) <= MAX_SOURCES else [UNNAMED] * len(dataset)


def source_in(example: Any) -> str:
    """The source that a row names; ``train`` where it names none."""
    return _name(example.get(COLUMN)) if isinstance(example, Mapping) else UNNAMED


def _name(value: Any) -> str:
    if value is None or isinstance(value, (Mapping, list, tuple)):
        return UNNAMED
    item = getattr(value, "item", None)
    if callable(item):
        try:
            value = item()
        except (RuntimeError, ValueError):  # more than one element
            return UNNAMED
    return str(value)[:_MAX_CHARS] or UNNAMED


def source_column(trainer: Any, dataset: Any) -> list[str] | None:
    """The column of the user's own set or of the loader's; None where neither has one."""
    for rows in (_whole(trainer, dataset), dataset):
        if COLUMN in _column_names(rows) and hasattr(rows, "select_columns"):
            column = rows.select_columns([COLUMN]).with_format(None)[:][COLUMN]
            return [_name(value) for value in column]
    return None


def _whole(trainer: Any, dataset: Any) -> Any:
    """The user's set, where its rows are those of the loader's; None: they are others."""
    whole = trainer.train_dataset
    if whole is None or whole is dataset or not hasattr(whole, "__getitem__"):
        return None
    try:
        is_same = len(whole) == len(dataset)
        return whole if is_same and (_own_loader(trainer) or _rows_agree(whole, dataset)) else None
    except Exception:  # a set of the user's own kind: no length, rows that cannot be read
        return None


def _own_loader(trainer: Any) -> bool:
    """Whether the loader is the library's: it drops columns and nothing else."""
    module = str(getattr(type(trainer).get_train_dataloader, "__module__", ""))
    return module.partition(".")[0] in ("transformers", "trl")


def _rows_agree(whole: Any, dataset: Any) -> bool:
    shared = [name for name in _column_names(dataset) if name in _column_names(whole)]
    rows = sampled_rows(len(whole), _COMPARED_ROWS, _COMPARED_ROWS)
    unknown: set[str] = set()
    return bool(shared) and all(
        content_digest(whole[row][name], unknown) == content_digest(dataset[row][name], unknown)
        for row in rows
        for name in shared
    )


def _column_names(rows: Any) -> Sequence[str]:
    found = getattr(rows, "column_names", None)
    return found if isinstance(found, list) else ()
