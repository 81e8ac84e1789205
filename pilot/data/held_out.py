"""A validation set where the user has none: training rows that the pilot holds out.

Two ways, in the order of preference. The choice is made once, by the survey, and every arm reads
the same rows (``held_out.npy``). Row ids are those of the user's own training set.

* ``undrawn``: rows that no step of the pilot draws. The run is not changed at all. It needs an
  order that is known before training, and enough rows that are left.
* ``share``: a random tenth of the rows (``MIN_ROWS`` to ``MAX_ROWS`` of them, a fifth at most) is
  taken out of training. The run is that of a smaller training set, with the full run's steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

NAME = "held_out"
UNDRAWN, SHARE = "undrawn", "share"
MIN_ROWS, MAX_ROWS = 8, 256  # fewer decide nothing; more than these cost training rows
ENOUGH_ROWS = 32  # undrawn rows, or as many as the share would be
_SHARE, _LARGEST_SHARE = 0.1, 0.2
_STREAM = 301  # of the random numbers under one data_seed


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which rows are held out, in ascending order, and in which way; or ``refused``: why none."""

    mode: str
    row_ids: tuple[int, ...]
    refused: str = ""


def of_several_processes() -> Choice:
    """None: each process would have to be told before it draws its first batch."""
    why = "rows are held out only where one process trains (launcher.num_processes=1)"
    return Choice(mode="", row_ids=(), refused=why)


def of_a_stream() -> Choice:
    """None: rows of a stream cannot be left out without another stream."""
    return Choice(
        mode="",
        row_ids=(),
        refused="its training set is a stream, of which no rows can be held out",
    )


def choose(
    num_rows: int,
    drawn: Ids | None,
    *,
    wanted: int | None,
    data_seed: int,
    share_refused: str = "",
) -> Choice:
    """Which of ``num_rows`` rows are held out.

    Args:
        num_rows: rows of the training set.
        drawn: every row that a step of the pilot may draw; None: that is not known.
        wanted: rows that are evaluated at most (``pilot.validation_rows``; None: all there are).
        data_seed: fixes the choice.
        share_refused: why rows cannot be taken out of training; empty: they can.
    """
    most = min(MAX_ROWS, wanted or MAX_ROWS)
    share = min(most, max(MIN_ROWS, int(_SHARE * num_rows)))
    random = np.random.default_rng((data_seed, num_rows, _STREAM))
    every = np.arange(num_rows, dtype=np.int64)
    if drawn is not None:
        left = np.setdiff1d(every, drawn)
        if len(left) >= min(ENOUGH_ROWS, share):
            size = min(len(left), max(ENOUGH_ROWS, wanted or MAX_ROWS))
            return Choice(mode=UNDRAWN, row_ids=_some(random, left, size))
    if share > _LARGEST_SHARE * num_rows:
        least = int(MIN_ROWS / _LARGEST_SHARE)
        why = f"its {num_rows} training rows are too few to hold some out ({least} are enough)"
        return Choice(mode="", row_ids=(), refused=why)
    if share_refused:
        why = f"no training rows can be held out: {share_refused}"
        return Choice(mode="", row_ids=(), refused=why)
    return Choice(mode=SHARE, row_ids=_some(random, every, share))


def _some(random: np.random.Generator, rows: Ids, size: int) -> tuple[int, ...]:
    chosen = rows[random.permutation(len(rows))[:size]]
    return tuple(sorted(int(row) for row in chosen))
