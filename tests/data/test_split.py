from __future__ import annotations

from pathlib import Path

import pytest

from pilot.data.rows import Conversation, Message
from pilot.data.split import split_by_answer
from pilot.errors import DataError

PATH = Path("data.jsonl")


def rows(*answers: str) -> list[Conversation]:
    return [
        Conversation(
            messages=(
                Message(role="user", content=f"question {index}"),
                Message(role="assistant", content=answer),
            ),
            source="s",
            line=index + 1,
        )
        for index, answer in enumerate(answers)
    ]


def test_share_and_no_row_is_lost() -> None:
    data = rows(*(f"answer {i}" for i in range(200)))
    train, held = split_by_answer(data, 0.1, PATH)
    assert len(held) == 20
    assert sorted(r.line for r in train + held) == list(range(1, 201))
    assert [r.line for r in held] == sorted(r.line for r in held)


def test_equal_answers_stay_together() -> None:
    data = rows(*(f"Answer   {i % 40}" if i % 2 else f"answer {i % 40}\n" for i in range(200)))
    train, held = split_by_answer(data, 0.2, PATH)
    sides = [{" ".join(r.answers[0].casefold().split()) for r in side} for side in (train, held)]
    assert not sides[0] & sides[1]
    assert 30 <= len(held) <= 40


def test_order_of_rows_does_not_matter() -> None:
    data = rows(*(f"answer {i}" for i in range(50)))
    one = split_by_answer(data, 0.2, PATH)[1]
    two = split_by_answer(data[::-1], 0.2, PATH)[1]
    assert {r.line for r in one} == {r.line for r in two}


def test_at_least_two_rows() -> None:
    train, held = split_by_answer(rows("a", "b", "c"), 0.01, PATH)
    assert (len(train), len(held)) == (1, 2)
    train, held = split_by_answer(rows("a", "a", "a", "b", "b", "b", "b"), 0.1, PATH)
    assert {r.answers[0] for r in held} == {"a"}


@pytest.mark.parametrize("answers", [(), ("a",), ("a", "b"), ("a",) * 9, ("a", "a", "b")[:2]])
def test_impossible(answers: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match="no validation rows can be split off") as caught:
        split_by_answer(rows(*answers), 0.5, PATH)
    assert "recipe.validation_data" in str(caught.value)


def test_a_single_row_group_is_never_the_whole_set() -> None:
    # The only group that fits has one row: the larger one must be taken, or nothing.
    train, held = split_by_answer(rows("a", "b", "b", "b"), 0.1, PATH)
    assert len(held) >= 2
    assert len(train) >= 1
