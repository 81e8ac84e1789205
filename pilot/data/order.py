"""The full run's own order: one permutation per epoch, the same on every machine.

Only the raw words of a bit generator and ``SeedSequence`` are promised to stay the same between
NumPy versions (NEP 19); ``Generator.permutation`` is not. So a permutation is the stable sort order
of raw 64-bit words.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


def random_words(count: int, *key: int) -> npt.NDArray[np.uint64]:
    """``count`` uniform 64-bit words that depend on the non-negative integers ``key`` alone."""
    words = np.random.PCG64(np.random.SeedSequence(key)).random_raw(count)
    return np.asarray(words, dtype=np.uint64)


def permutation(count: int, *key: int) -> Ids:
    """A permutation of ``range(count)`` that depends on ``key`` alone."""
    return np.argsort(random_words(count, *key), kind="stable").astype(np.int64)


def full_order(
    num_rows: int, num_needed: int, data_seed: int, shuffle: bool, start: int = 0
) -> Ids:
    """Row ids in the order in which the full run draws them.

    Args:
        num_rows: rows of the training set; an epoch draws each once.
        num_needed: how many draws are wanted.
        data_seed: with the epoch's number (from 0) it fixes the epoch's permutation.
        shuffle: false: every epoch is ``0, 1, 2, ...``.
        start: draws that lie before the first one returned (a pilot from a checkpoint).

    Raises:
        ValueError: no rows although some are needed, or a negative count.
    """
    if num_rows < 0 or num_needed < 0 or start < 0 or (num_rows == 0 and num_needed > 0):
        raise ValueError(f"cannot draw {num_needed} rows of {num_rows} from draw {start} on")
    if num_needed == 0:
        return np.empty(0, dtype=np.int64)
    first, last = start // num_rows, (start + num_needed - 1) // num_rows
    epochs = [
        permutation(num_rows, data_seed, epoch) if shuffle else np.arange(num_rows, dtype=np.int64)
        for epoch in range(first, last + 1)
    ]
    skip = start - first * num_rows
    return np.concatenate(epochs)[skip : skip + num_needed]
