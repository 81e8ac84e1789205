"""Source and length of every training row of a Trainer, without reading each one where possible.

The truth is what the collator makes of a row by itself. A few rows are collated and compared with
what follows from their own columns (``columns.py``); a rule that agrees on all of them, and then on
the longest rows, is used for all. Where none does, every row is collated. Rows that would take too
long to read are measured on an even sample: the others have ``UNMEASURED`` as their counts, and so
have rows on which the user's code fails. A row that can be collated among others, but not by
itself, is no fault.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pilot.engines import seeds
from pilot.engines.hf.columns import (
    CHUNK_ROWS,
    Columns,
    Rule,
    column_chunks,
    columns_of_rows,
    is_columnar,
    make_rules,
)
from pilot.engines.hf.digests import sampled_rows
from pilot.engines.hf.failed_rows import ALONE, RowFailedError, twice
from pilot.engines.hf.rows import count_tokens
from pilot.engines.hf.sources import source_in, sources_of
from pilot.recipe import RowFacts

if TYPE_CHECKING:
    import numpy.typing as npt

    Counts = npt.NDArray[np.int64]

UNMEASURED = -1
MOST_SECS = 10.0  # of reading rows one at a time; beyond, a sample
SAMPLE_ROWS = 4_096
_PROBED_ROWS = 24
_LONGEST_ROWS = 8
_TRIED_ROWS = 32  # of rows that cannot be collated by themselves, again among others


def row_facts(
    trainer: Any,
    loader: Any,
    *,
    failed: dict[int, str] | None = None,
    most_secs: float = MOST_SECS,
) -> list[RowFacts]:
    """The facts of all rows of ``loader``'s dataset, by row id.

    Args:
        trainer: the Trainer.
        loader: its training loader; the dataset has a length.
        failed: takes the rows on which the user's code fails, also among others, and how.
        most_secs: more seconds than this of reading one at a time are not spent: a sample is read.
    """
    reader = _Reader(trainer, loader)
    state = seeds.random_state()
    try:
        counts = _counts(reader, most_secs)
    except RowFailedError:
        counts = _one_by_one(reader, most_secs, {} if failed is None else failed)
    finally:
        seeds.set_random_state(state)
    sources = sources_of(trainer, loader.dataset, reader.named)
    return [
        RowFacts(source=source, num_tokens=tokens, num_supervised_tokens=supervised)
        for source, (tokens, supervised) in zip(sources, counts.tolist(), strict=True)
    ]


class _Reader:
    """Reads and collates single rows; ``named`` are the sources of those read."""

    def __init__(self, trainer: Any, loader: Any) -> None:
        self.trainer, self.collate = trainer, loader.collate_fn
        self.dataset = loader.dataset
        self.named: dict[int, str] = {}
        self.good: list[Any] = []  # two rows that the collator took

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, row: int) -> Any:
        """One row, as the collator is given it.

        Raises:
            RowFailedError: it cannot be read.
        """
        example = twice(lambda: self.dataset[row], row)
        self.named[row] = source_in(example)
        return example

    def collated(self, rows: Sequence[int]) -> Counts:
        """Tokens and supervised tokens of rows as the collator makes them; shape [rows, 2]."""
        return np.array([self._one(row) for row in rows], dtype=np.int64).reshape(-1, 2)

    def _one(self, row: int) -> tuple[int, int]:
        example = self.read(row)

        def count() -> list[float]:
            return count_tokens(self.trainer, [self.collate([example])]).tolist()

        counts = twice(count, row, ALONE)
        if len(self.good) < 2:
            self.good.append(example)
        return int(counts[1]), int(counts[0])

    def fails_among_others(self, row: int) -> bool:
        """Whether the collator does not take ``row`` in a batch of three either."""
        try:
            example = self.read(row)
            others = self.good or [self.read((row + k) % len(self)) for k in (1, 2)]
            twice(lambda: self.collate([others[0], example, others[-1]]), row)
        except RowFailedError:
            return True
        return False

    def chunks(self, rows: Sequence[int] | None) -> Iterator[Columns]:
        """The known columns of ``rows`` (None: all), chunk by chunk."""
        if is_columnar(self.dataset):
            yield from column_chunks(self.dataset, rows)
            return
        every = iter(range(len(self)) if rows is None else rows)
        while some := list(itertools.islice(every, CHUNK_ROWS)):
            yield columns_of_rows([self.read(row) for row in some])


def _counts(reader: _Reader, most_secs: float) -> Counts:
    """Tokens and supervised tokens of every row; shape [rows, 2]."""
    num_rows = len(reader)
    probed = sampled_rows(num_rows, _PROBED_ROWS, _PROBED_ROWS)
    begun = time.perf_counter()
    expected = reader.collated(probed)
    collate_secs = (time.perf_counter() - begun) / max(1, len(probed))
    begun = time.perf_counter()
    chunks = list(reader.chunks(probed))
    read_secs = (time.perf_counter() - begun) / max(1, len(probed))
    rule = _agreeing(chunks, expected)
    if rule is not None:
        is_long = not is_columnar(reader.dataset) and read_secs * num_rows > most_secs
        rows = sampled_rows(num_rows, SAMPLE_ROWS, SAMPLE_ROWS) if is_long else None
        found = _by_rule(reader, rule, rows)
        if found is not None and _holds_for_the_longest(reader, found):
            return found
    if collate_secs * num_rows <= most_secs:
        return reader.collated(range(num_rows))
    rows = sampled_rows(num_rows, SAMPLE_ROWS, SAMPLE_ROWS)
    counts = np.full((num_rows, 2), UNMEASURED, dtype=np.int64)
    counts[rows] = reader.collated(rows)
    return counts


def _one_by_one(reader: _Reader, most_secs: float, failed: dict[int, str]) -> Counts:
    """Like ``_counts`` where some rows fail: each by itself, as far as ``most_secs`` goes."""
    num_rows, begun = len(reader), time.perf_counter()
    counts = np.full((num_rows, 2), UNMEASURED, dtype=np.int64)
    found: dict[int, str] = {}
    first = sampled_rows(num_rows, SAMPLE_ROWS, SAMPLE_ROWS)
    known = set(first)
    for row in itertools.chain(first, (k for k in range(num_rows) if k not in known)):
        try:
            counts[row] = reader.collated([row])[0]
        except RowFailedError as error:
            found[row] = error.why
        if time.perf_counter() - begun > most_secs:
            break
    failed.update(_at_fault(reader, found))
    return counts


def _at_fault(reader: _Reader, found: dict[int, str]) -> dict[int, str]:
    """The rows of ``found`` that fail among others too; where each that is tried does, all."""
    tried = [row for row in itertools.islice(found, _TRIED_ROWS) if reader.fails_among_others(row)]
    if len(tried) == min(_TRIED_ROWS, len(found)):
        return found
    return {row: found[row] for row in tried}


def _agreeing(chunks: Sequence[Columns], expected: Counts) -> Rule | None:
    """The first rule that gives what the collator gave for the rows of ``chunks``."""
    for rule in make_rules().values():
        found = _applied(rule, chunks)
        if found is not None and np.array_equal(found, expected):
            return rule
    return None


def _by_rule(reader: _Reader, rule: Rule, rows: Sequence[int] | None) -> Counts | None:
    found = _applied(rule, reader.chunks(rows))
    if found is None or rows is None:
        return found
    counts = np.full((len(reader), 2), UNMEASURED, dtype=np.int64)
    counts[rows] = found
    return counts


def _applied(rule: Rule, chunks: Iterable[Columns]) -> Counts | None:
    """``rule`` on every chunk; None where one lacks a column."""
    parts = []
    for chunk in chunks:
        found = rule(chunk)
        if found is None:
            return None
        parts.append(np.stack(found, axis=1))
    return np.concatenate(parts) if parts else None


def _holds_for_the_longest(reader: _Reader, counts: Counts) -> bool:
    """A collator that cuts rows shows on the longest ones."""
    longest = [int(row) for row in np.argsort(-counts[:, 0], kind="stable")[:_LONGEST_ROWS]]
    return bool(np.array_equal(reader.collated(longest), counts[longest]))
