"""Rows of several processes: their order, their way to each other, and how a step is shared out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pilot.engines.hf import ranks
from pilot.errors import UsageError


def as_rank(monkeypatch: pytest.MonkeyPatch, rank: int, num: int) -> None:
    monkeypatch.setattr(ranks, "num_ranks", lambda: num)
    monkeypatch.setattr(ranks, "own_rank", lambda: rank)


def test_the_order_is_that_of_one_process() -> None:
    assert ranks.in_order([[(0, 1), (4, 5)], [(2, 3), (6, 7)]]) == tuple(range(8))
    assert ranks.in_order([[(0, 1), (4,)], [(2, 3)]]) == (0, 1, 2, 3, 4)
    assert ranks.in_order([]) == ranks.in_order([[], []]) == ()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (range(8), [[(0, 1), (4, 5)], [(2, 3), (6, 7)]]),
        (range(6), [[(0, 1), (4,)], [(2, 3), (5,)]]),
        (range(5), [[(0, 1), (4,)], [(2, 3), (0,)]]),
        (range(1), [[(0,)], [(0,)]]),
    ],
)
def test_a_step_is_shared_out(
    monkeypatch: pytest.MonkeyPatch, rows: range, expected: list[Any]
) -> None:
    for rank, batches in enumerate(expected):
        as_rank(monkeypatch, rank, 2)
        assert ranks.share_of(rows, 2) == batches


def test_rows_travel_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    batches_of = [[(7, 8), (9,)], [(1, 2**40), ()]]
    sent: list[torch.Tensor] = []
    as_rank(monkeypatch, 0, 2)
    monkeypatch.setattr(ranks.dist, "all_gather", lambda found, mine: sent.append(mine))
    for batches in batches_of:
        ranks.send_rows(batches, 9, torch.device("cpu"))
    assert ranks.received_rows(torch.stack(sent)) == (7, 8, 1, 2**40, 9)
    ranks.send_rows([(1, 2, 3)] * 3, 9, torch.device("cpu"))  # more than there is room for
    assert ranks.received_rows(torch.stack([sent[0], sent[-1]])) == ()


def test_a_callback_that_only_one_process_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this the others would wait for ever for its share of a sum."""
    store = torch.distributed.HashStore()
    monkeypatch.setattr(ranks.dist.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(ranks, "_MEETING_SECS", 0.05)
    ranks.require_everywhere("PilotCallback")  # alone: nothing to wait for
    as_rank(monkeypatch, 0, 2)
    with pytest.raises(UsageError, match="has begun in 1 of 2 processes"):
        ranks.require_everywhere("PilotCallback")
