"""What the user's code raised inside a Trainer's loop, with its place and rows; how a loop ends."""

from __future__ import annotations

import traceback
from typing import Any

from pilot.engines.guard import is_out_of_memory
from pilot.engines.hf.tap import Tap
from pilot.errors import RecipeFailure


class EndedEarly(Exception):
    """The Trainer's loop ended before the last step of its full run, without an exception."""


_KEPT_CHARS = 8_000  # of the traceback: its end says what happened


def failure_of(tap: Tap, error: BaseException) -> RecipeFailure:
    """``error`` as the failure of the step that ``tap`` is in."""
    text = "".join(traceback.format_exception(error))
    return RecipeFailure(
        tap.place,
        step=tap.failed_step,
        row_ids=tap.failed_rows(),
        error=error,
        out_of_memory=is_out_of_memory(error),
        traceback_text=text[-_KEPT_CHARS:],
    )


def ended_early(tap: Tap) -> RecipeFailure:
    """A loop that ended by itself before its last step: the full run would end there as well."""
    trainer: Any = tap.trainer
    done, planned = trainer.state.global_step, trainer.state.max_steps
    asked = trainer.control.should_training_stop and done
    why = "a callback set should_training_stop" if asked else "no batch was left to be trained on"
    error = EndedEarly(f"the training ended by itself after step {done} of {planned}: {why}")
    return RecipeFailure(
        "callback" if asked else "run",
        step=done,
        row_ids=(),
        error=error,
        out_of_memory=False,
        traceback_text="",
    )


def nothing_to_train(tap: Tap) -> RecipeFailure:
    """A model of which everything is frozen."""
    error = ValueError("the model has no trainable parameter: everything is frozen")
    return RecipeFailure(
        "build", step=None, row_ids=(), error=error, out_of_memory=False, traceback_text=""
    )
