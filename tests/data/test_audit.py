from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pilot.data.audit import MAX_ROW_IDS, audit_rows, order_audit


def test_blocks_are_found() -> None:
    codes = np.repeat([0, 1, 2], [50, 30, 20])
    found = order_audit(codes)
    assert found["longest_run"] == 50
    assert found["longest_run_source"] == 0
    assert found["blocked"] is True
    assert found["num_rows"] == 100
    assert found["num_sources"] == 3
    assert found["second_epoch_differs"] is None


def test_permutations_are_not_blocked() -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], [50, 30, 20])
    found = [order_audit(rng.permutation(codes)) for _ in range(1000)]
    runs = [item["longest_run"] for item in found]
    assert sum(item["blocked"] for item in found) <= 5  # 1 is expected
    assert abs(np.mean(runs) - found[0]["expected_longest_run"]) < 0.3


def test_the_bound_is_the_exact_expectation() -> None:
    # Two sources, one row of the second among 4: a run of 3 or more in 2 of 4 orders.
    found = order_audit([0, 0, 1, 0])
    assert found["longest_run"] == 2
    assert found["longest_run_bound"] == 4  # runs of 4 cannot be: 0 expected
    assert found["blocked"] is False


def test_many_small_sources_in_blocks() -> None:
    codes = np.repeat(np.arange(1000), 3)
    assert order_audit(codes)["blocked"] is True
    assert order_audit(np.random.default_rng(0).permutation(codes))["blocked"] is False


@pytest.mark.parametrize("codes", [[], [3], [3] * 10])
def test_nothing_to_mix_is_not_blocked(codes: list[int]) -> None:
    found = order_audit(codes)
    assert found["blocked"] is False
    assert found["longest_run"] == len(codes)


def test_only_the_first_epoch_counts_and_the_second_is_compared() -> None:
    codes = np.array([0, 1, 0, 1, 1, 0])
    ids = np.array([0, 1, 2, 0, 1, 2])
    found = order_audit(codes, row_ids=ids)
    assert found["num_rows"] == 3
    assert found["longest_run"] == 1
    assert found["second_epoch_differs"] is False
    assert order_audit(codes, row_ids=[0, 1, 2, 2, 1, 0])["second_epoch_differs"] is True
    assert order_audit(codes[:5], row_ids=ids[:5])["second_epoch_differs"] is None
    assert order_audit([], row_ids=[])["second_epoch_differs"] is None


def row(ids: Any, labels: Any) -> dict[str, Any]:
    return {"input_ids": ids, "labels": labels}


def test_every_kind_of_bad_row() -> None:
    rows = [
        row([1, 2, 3], [-100, 2, 3]),
        row([1, 10], [-100, 1]),
        row([1, -1], [-100, 1]),
        row([1, 2], [-100, 10]),
        row([1, 2], [-100, -1]),
        row([1, 2, 3, 4, 5], [-100] * 4 + [5]),
        row([1, 2], [-100, -100]),
        row([1, 2], [1, -100]),  # the first label is predicted by nothing
        row([], []),
    ]
    assert audit_rows("train", rows, vocab_size=10, max_positions=4) == {
        "set": "train",
        "num_rows": 9,
        "num_rows_checked": 9,
        "longest_tokens": 5,
        "num_too_long": 1,
        "too_long": [5],
        "num_bad_input_ids": 2,
        "bad_input_ids": [1, 2],
        "num_bad_label_ids": 2,
        "bad_label_ids": [3, 4],
        "num_no_labels": 3,
        "no_labels": [6, 7, 8],
    }


def test_unknown_limits_are_not_counted_but_negative_ids_are() -> None:
    rows = [row([10**9, 1, -5], [-100, 10**9, -7])]
    found = audit_rows("train", rows, vocab_size=None, max_positions=None)
    assert found["num_too_long"] == 0
    assert found["bad_input_ids"] == [0]
    assert found["bad_label_ids"] == [0]
    found = audit_rows("t", [row([10**9], [1])], vocab_size=None, max_positions=None)
    assert found["num_bad_input_ids"] == 0


def test_attributes_tuples_arrays_and_tensors() -> None:
    torch = pytest.importorskip("torch")
    rows = [
        SimpleNamespace(input_ids=(1, 2), labels=(1, 2)),
        row(np.array([1, 2], dtype=np.int32), np.array([1, 2])),
        row(torch.tensor([1, 99]), torch.tensor([1, 2])),
    ]
    found = audit_rows("v", rows, vocab_size=10, max_positions=None)
    assert found["num_rows_checked"] == 3
    assert found["bad_input_ids"] == [2]


def test_examples_without_token_ids_are_not_checked() -> None:
    rows: list[Any] = [
        (0.1, 0.2),
        {"input_ids": [1, 2]},
        row([0.5], [1]),
        row([[1, 2]], [[1, 2]]),
        row([[1, 2], [3]], [1]),
        row("ab", "ab"),
        row([1, 99], [1, 2]),
    ]
    found = audit_rows("v", rows, vocab_size=10, max_positions=None)
    assert (found["num_rows"], found["num_rows_checked"]) == (7, 1)
    assert found["bad_input_ids"] == [6]  # the row's own id, not its place among the checked
    empty = audit_rows("v", rows[:3], vocab_size=10, max_positions=8)
    assert (empty["num_rows_checked"], empty["longest_tokens"], empty["no_labels"]) == (0, 0, [])


def test_lists_of_row_ids_are_short() -> None:
    found = audit_rows("t", [row([1], [1])] * 50, vocab_size=10, max_positions=4)
    assert found["num_no_labels"] == 50
    assert found["no_labels"] == list(range(MAX_ROW_IDS))


def test_another_ignored_value_than_minus_100_is_no_mistake() -> None:
    """Some code bases ignore -1; two different negative labels are a mistake."""
    rows = [{"input_ids": [1, 2, 3], "labels": [-1, 2, 3]}]
    assert audit_rows("a", rows, vocab_size=5, max_positions=8)["num_bad_label_ids"] == 0
    rows.append({"input_ids": [1, 2, 3], "labels": [-1, -7, 3]})
    assert audit_rows("a", rows, vocab_size=5, max_positions=8)["num_bad_label_ids"] == 2
    hidden = [{"input_ids": [1, 2], "labels": [-1, -1]}]
    assert audit_rows("a", hidden, vocab_size=5, max_positions=8)["num_no_labels"] == 1
