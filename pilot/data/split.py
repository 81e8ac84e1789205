"""Split a validation set off the training rows, by the answers."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from pilot.data.rows import Conversation
from pilot.errors import DataError

MIN_VALIDATION_ROWS = 2  # one row has no standard error


def split_by_answer(
    rows: Sequence[Conversation], frac: float, path: Path
) -> tuple[list[Conversation], list[Conversation]]:
    """Training and validation rows; equal answers never fall on both sides.

    Groups of equal answers (case and white space normalised) are taken in the order of their hash
    while they fit into ``frac`` of the rows, but at least two rows. The split depends on the
    answers alone: no seed, no order of rows.

    Raises:
        DataError: fewer than two rows can be split off, or nothing would be left to train on.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        groups[_answer_hash(row)].append(index)
    wanted = max(MIN_VALIDATION_ROWS, round(frac * len(rows)))
    taken: list[int] = []
    for key in sorted(groups):
        if len(taken) + len(groups[key]) <= wanted:
            taken += groups[key]
    if len(taken) < MIN_VALIDATION_ROWS:  # the smallest group that does, though it is over frac
        enough = [key for key in groups if len(groups[key]) >= MIN_VALIDATION_ROWS]
        taken = groups[min(enough, key=lambda key: (len(groups[key]), key))] if enough else []
    if not MIN_VALIDATION_ROWS <= len(taken) < len(rows):
        raise DataError(
            path,
            f"no validation rows can be split off: {len(rows)} rows, "
            f"{len(groups)} different answer{'' if len(groups) == 1 else 's'}",
            remedy="give recipe.validation_data=FILE with rows of its own",
        )
    chosen = set(taken)
    train = [row for index, row in enumerate(rows) if index not in chosen]
    return train, [rows[index] for index in sorted(chosen)]


def _answer_hash(row: Conversation) -> str:
    text = "\0".join(" ".join(answer.casefold().split()) for answer in row.answers)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
