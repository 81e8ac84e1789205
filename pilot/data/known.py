"""What a survey knows of the training rows: how many there are, and whether they come again.

A stream has no length and no row ids. The native engine keeps its newest rows, so that a branch can
go back a little; rows that the user's own loop has drawn from a stream are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_stream(survey: Mapping[str, Any]) -> bool:
    """Whether the training data is a stream."""
    return survey.get("num_train_rows", 0) is None


def num_rows(survey: Mapping[str, Any]) -> int:
    """Training rows; 0 for a stream."""
    return int(survey.get("num_train_rows") or 0)


def goes_back(survey: Mapping[str, Any]) -> bool:
    """Whether rows that were trained on can be had again."""
    return bool(survey.get("rows_come_again", True))
