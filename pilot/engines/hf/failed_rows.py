"""Rows of the user's that cannot be read, or not be collated by themselves: noted, not fatal.

A row that fails is tried a second time: what fails by the number of calls is met by the run itself,
at its own step. What fails twice is the row's fault, and the full run would break on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pilot.data.audit import MAX_ROW_IDS
from pilot.errors import UsageError

T = TypeVar("T")
ALONE = "collated by itself: "
_MAX_CHARS = 200


class RowFailedError(Exception):
    """The user's code fails on one row, twice."""

    def __init__(self, row: int, why: str) -> None:
        self.row, self.why = row, why
        super().__init__(f"row {row}: {why}")


def twice(act: Callable[[], T], row: int, what: str = "") -> T:
    """``act()``, tried again when it raises.

    Raises:
        RowFailedError: it raises again.
    """
    try:
        return act()
    except Exception:
        try:
            return act()
        except Exception as error:
            text = f"{what}{type(error).__name__}: {error}"
            raise RowFailedError(row, " ".join(text.split())[:_MAX_CHARS]) from error


def read_rows(dataset: Any, rows: Sequence[int], failed: dict[int, str]) -> list[Any]:
    """These rows; an empty mapping in the place of one that cannot be read, with the reason."""
    found = []
    for row in rows:
        try:
            found.append(twice(lambda row=row: dataset[row], row))  # type: ignore[misc]
        except RowFailedError as error:
            failed[row] = error.why
            found.append({})
    return found


def in_audit(audit: dict[str, Any], failed: dict[int, str]) -> dict[str, Any]:
    """``audit`` with the rows of its set that failed, if any did."""
    if not failed:
        return audit
    ids = sorted(failed)
    more = {"num_unreadable": len(ids), "unreadable": ids[:MAX_ROW_IDS]}
    return {**audit, **more, "unreadable_why": failed[ids[0]]}


def wants_several(target: str) -> UsageError:
    """What is said where no row can be collated by itself, and all can among others."""
    return UsageError(
        f"recipe.trainer = {target!r}: its collator takes no row by itself; pilot validates one "
        "row at a time, and counts the tokens of each\n"
        "    remedy: let it take a batch of one row, or describe the run as a recipe of your own "
        "(recipes/README.md)"
    )
