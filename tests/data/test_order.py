from __future__ import annotations

import numpy as np
import pytest

from pilot.data.order import full_order, permutation, random_words


def test_epochs_are_different_permutations() -> None:
    order = full_order(50, 120, data_seed=3, shuffle=True)
    assert order.dtype == np.int64
    assert sorted(order[:50]) == sorted(order[50:100]) == list(range(50))
    assert not np.array_equal(order[:50], order[50:100])
    assert len(set(order[100:])) == 20


def test_start_continues_the_same_order() -> None:
    whole = full_order(17, 100, data_seed=1, shuffle=True)
    for start in (0, 1, 16, 17, 18, 51, 99):
        part = full_order(17, 100 - start, data_seed=1, shuffle=True, start=start)
        assert np.array_equal(part, whole[start:])


def test_unshuffled() -> None:
    assert full_order(3, 7, data_seed=5, shuffle=False).tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert full_order(3, 3, data_seed=5, shuffle=False, start=2).tolist() == [2, 0, 1]


def test_seed_decides() -> None:
    one, two = (full_order(100, 100, seed, True) for seed in (0, 1))
    assert not np.array_equal(one, two)
    assert np.array_equal(one, full_order(100, 100, 0, True))


def test_the_order_is_pinned() -> None:
    # A change here changes every pilot that was ever run with the same seed.
    assert random_words(2, 0, 0).tolist() == [11749869230777074271, 4976686463289251617]
    assert permutation(8, 7, 1).tolist() == [1, 3, 2, 7, 4, 5, 0, 6]


def test_edges() -> None:
    assert full_order(0, 0, 0, True).tolist() == []
    assert full_order(1, 3, 0, True).tolist() == [0, 0, 0]
    for bad in ((0, 1, 0), (5, -1, 0), (5, 1, -1)):
        with pytest.raises(ValueError, match="cannot draw"):
            full_order(bad[0], bad[1], 0, True, start=bad[2])
