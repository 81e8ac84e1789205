"""What the user's code raised inside a Trainer's loop, with its place and rows."""

from __future__ import annotations

import traceback

from pilot.engines.guard import is_out_of_memory
from pilot.engines.hf.tap import Tap
from pilot.errors import RecipeFailure

_KEPT_CHARS = 8_000  # of the traceback: its end says what happened


def failure_of(tap: Tap, error: BaseException) -> RecipeFailure:
    """``error`` as the failure of the step that ``tap`` is in."""
    text = "".join(traceback.format_exception(error))
    return RecipeFailure(
        tap.place,
        step=tap.step + 1,
        row_ids=tap.failed_rows(),
        error=error,
        out_of_memory=is_out_of_memory(error),
        traceback_text=text[-_KEPT_CHARS:],
    )
