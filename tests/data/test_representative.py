from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilot.data.representative import representative_order

Ints = npt.NDArray[np.int64]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Ints, Ints]:
    """Lengths and source codes of 1 to 80 rows, sources of unequal sizes."""
    rows = draw(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 4)), min_size=1, max_size=80))
    lengths, sources = zip(*rows, strict=True)
    codes = np.unique(sources, return_inverse=True)[1]
    return np.array(lengths, dtype=np.int64), codes.astype(np.int64)


def skewed(num_rows: int = 2000) -> tuple[Ints, Ints]:
    """One source with half of the rows, a source of one row, log-normal lengths."""
    rng = np.random.default_rng(0)
    shares = [0.5, 0.3, 0.15, 0.05]
    source = rng.choice(4, size=num_rows, p=shares).astype(np.int64)
    source[7] = 4
    length = np.exp(rng.normal(4.0 + 0.3 * source, 0.8)).astype(np.int64) + 1
    return length, source


@settings(max_examples=60, deadline=None)
@given(tables(), st.integers(0, 200), st.integers(0, 200), st.integers(1, 6), st.integers(0, 99))
def test_properties(
    table: tuple[Ints, Ints], needed: int, within: int, micro_batch: int, seed: int
) -> None:
    length, source = table
    n = len(length)
    order = representative_order(needed, within, length, source, seed, micro_batch)
    assert len(order) == needed
    for first in range(0, needed, n):  # no duplicates inside an epoch, whole epochs complete
        epoch = order[first : first + n]
        assert len(set(epoch.tolist())) == len(epoch)
    again = representative_order(needed, within, length, source, seed, micro_batch)
    assert np.array_equal(order, again)
    room = min(n, needed, within)
    num_sources = int(source.max()) + 1
    seen = order[:room]
    longest = np.sort(length)[::-1][: min(micro_batch, room)]
    assert np.array_equal(np.sort(length[seen])[::-1][: len(longest)], longest)
    if room >= micro_batch + num_sources:
        assert len(np.unique(source[seen])) == num_sources
    size = min(n, needed)
    counts = np.bincount(source[order[:size]], minlength=num_sources)
    exact = np.bincount(source) * (size / n)
    forced = min(room, micro_batch + num_sources)  # each may replace one row of another source
    assert (np.abs(counts - exact) <= 1 + forced).all()


@pytest.mark.parametrize("needed", [400, 1312])
def test_shares_and_lengths_are_kept(needed: int) -> None:
    length, source = skewed()
    order = representative_order(needed, 300, length, source, 0, 8)
    counts = np.bincount(source[order])
    exact = np.bincount(source) * needed / len(source)
    assert np.abs(counts - exact)[:4].max() <= 2.0
    assert counts[4] == 1
    for q in (0.1, 0.25, 0.5, 0.75, 0.9):
        whole, sample = np.quantile(length, q), np.quantile(length[order], q)
        assert abs(sample / whole - 1) < 0.06


def test_extremes_come_early() -> None:
    length, source = skewed()
    longest = set(np.argsort(length)[-8:].tolist())
    for seed in range(20):
        order = representative_order(400, 100, length, source, seed, 8)
        assert longest <= set(order[:100].tolist())
        assert 7 in order[:100]  # the only row of its source


def test_extremes_are_not_bunched_at_the_start() -> None:
    length, source = skewed()
    longest = np.argsort(length)[-8:]
    places = [
        np.flatnonzero(np.isin(representative_order(400, 400, length, source, s, 8), longest))
        for s in range(20)
    ]
    assert 120 < np.mean(places) < 280


def test_whole_epochs_come_first() -> None:
    length, source = skewed(100)
    order = representative_order(250, 30, length, source, 0, 4)
    assert sorted(order[:100]) == sorted(order[100:200]) == list(range(100))
    assert not np.array_equal(order[:100], order[100:200])
    assert set(np.argsort(length)[-4:].tolist()) <= set(order[:30].tolist())


def test_every_row_is_equally_likely() -> None:
    length = np.arange(60, dtype=np.int64)
    source = np.zeros(60, dtype=np.int64)
    counts = np.zeros(60)
    for seed in range(600):
        counts[representative_order(20, 0, length, source, seed, 1)] += 1
    assert counts.sum() == 600 * 20
    assert abs(counts / 600 - 1 / 3).max() < 5 * np.sqrt(2 / 9 / 600)


def test_no_room_means_no_guarantee_and_longest_first() -> None:
    length = np.array([1, 1, 1, 9, 1, 8], dtype=np.int64)
    source = np.array([0, 0, 0, 0, 1, 0], dtype=np.int64)
    order = representative_order(3, 1, length, source, 0, 2)
    assert order[0] == 3
    assert len(representative_order(3, 0, length, source, 0, 2)) == 3


def test_edges() -> None:
    empty = np.empty(0, dtype=np.int64)
    one = np.zeros(1, dtype=np.int64)
    assert representative_order(0, 0, empty, empty, 0, 8).tolist() == []
    assert representative_order(3, 3, one, one, 0, 8).tolist() == [0, 0, 0]
    for lengths, sources in ((empty, empty), (one, empty)):
        with pytest.raises(ValueError, match="cannot draw"):
            representative_order(1, 1, lengths, sources, 0, 8)
