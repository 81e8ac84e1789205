"""Token counts of many tokenized rows at once: whole columns instead of a row at a time.

A row's counts are what its collator makes of it. For the usual collators they follow from the
row's own columns by one of a few ``RULES``; which one holds is found by comparing with the collator
(``pilot/engines/hf/facts.py``), never assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pilot.engines.hf.rows import IGNORED

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

COLUMNS = ("input_ids", "labels", "attention_mask", "completion_mask", "assistant_masks")
CHUNK_ROWS = 5_000


@dataclass(frozen=True)
class Column:
    """One column of several rows: all values in a row, and how many each row has."""

    values: Ints
    lengths: Ints

    def sums(self, marked: npt.NDArray[np.bool_], *, skip_first: bool) -> Ints:
        """How many values of each row are marked; without those of its first position."""
        ends = np.cumsum(self.lengths)
        total = np.concatenate([[0], np.cumsum(marked)])
        starts = ends - self.lengths
        counts: Ints = total[ends] - total[starts]
        if skip_first:
            has = self.lengths > 0
            counts[has] -= marked[starts[has]]
        return counts


Columns = Mapping[str, Column]
Rule = Callable[[Columns], "tuple[Ints, Ints] | None"]


def make_rules() -> dict[str, Rule]:
    """Every way to count tokens and supervised tokens, by name."""
    rules: dict[str, Rule] = {}
    for tokens in ("attention_mask", "input_ids"):
        for names in (("labels",), ("completion_mask",), ("assistant_masks",), _BOTH, ()):
            for shifts in (True, False):
                rules[f"{tokens}/{'+'.join(names) or 'all'}/{shifts}"] = _rule(
                    tokens, names, shifts
                )
    return rules


_BOTH = ("completion_mask", "assistant_masks")


def _rule(tokens: str, names: Sequence[str], shifts: bool) -> Rule:
    def counts(columns: Columns) -> tuple[Ints, Ints] | None:
        ids = columns.get("input_ids")
        if ids is None or any(name not in columns for name in (tokens, *names)):
            return None
        mask = columns[tokens]
        own = (
            mask.lengths if tokens == "input_ids" else mask.sums(mask.values != 0, skip_first=False)
        )
        marked = np.ones(len(ids.values), dtype=bool)
        for name in names:
            column = columns[name]
            if not np.array_equal(column.lengths, ids.lengths):
                return None
            marked &= column.values != (IGNORED if name == "labels" else 0)
        return own, ids.sums(marked, skip_first=shifts)

    return counts


def columns_of_rows(rows: Sequence[Any]) -> Columns:
    """The known columns of rows that are mappings; empty where they are not, or not all alike."""
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        return {}
    found = {}
    for name in COLUMNS:
        if all(name in row for row in rows):
            arrays = [_integers(row[name]) for row in rows]
            if any(array is None for array in arrays):
                continue
            known = [array for array in arrays if array is not None]
            lengths = np.array([len(array) for array in known], dtype=np.int64)
            found[name] = Column(np.concatenate(known), lengths)
    return found


def is_columnar(dataset: Any) -> bool:
    """A ``datasets.Dataset`` whose rows are what its table holds (no transform on reading)."""
    kind = type(dataset)
    known = kind.__module__.startswith("datasets.") and hasattr(dataset, "with_format")
    return known and hasattr(dataset, "column_names") and dataset.format["type"] != "custom"


def column_chunks(dataset: Any, rows: Sequence[int] | None = None) -> Iterator[Columns]:
    """The known columns of a ``datasets.Dataset``, chunk by chunk; columns of other kinds are out.

    Args:
        dataset: one that ``is_columnar``.
        rows: only these, in their order; None: all.
    """
    names = [name for name in COLUMNS if name in dataset.column_names]
    if not names:
        return
    table = dataset.select_columns(names)
    table = (table if rows is None else table.select(rows)).with_format("arrow")
    for begin in range(0, len(table), CHUNK_ROWS):
        chunk = table[begin : begin + CHUNK_ROWS]
        found = {name: _arrow_column(chunk.column(name)) for name in names}
        yield {name: column for name, column in found.items() if column is not None}


def _arrow_column(column: Any) -> Column | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    array = column.combine_chunks()
    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return None
    inner = kind.value_type
    if not (pa.types.is_integer(inner) or pa.types.is_boolean(inner)) or array.null_count:
        return None
    lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False)
    values = pc.list_flatten(array)
    if values.null_count:
        return None
    return Column(values.to_numpy(zero_copy_only=False).astype(np.int64), lengths.astype(np.int64))


def _integers(value: Any) -> Ints | None:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):  # unequal lengths, a tensor on a device
        return None
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iub"):
        return None
    return array.astype(np.int64)
