"""How an arm ended that the recipe's code brought down: its outcome, with place, step and rows."""

from __future__ import annotations

from pilot.engines import world
from pilot.engines.base import Engine
from pilot.errors import RecipeFailure
from pilot.memory import peak_memory_bytes
from pilot.records import Outcome
from pilot.tracking.hide import hide_message


def failed(failure: RecipeFailure, last_step: int, engine: Engine | None) -> Outcome:
    """The outcome of a failure in this process; in an arm of several its message says in which."""
    return Outcome(
        status=Outcome.OUT_OF_MEMORY if failure.out_of_memory else Outcome.EXCEPTION,
        last_step=last_step,
        where=failure.where,
        step=failure.step,
        row_ids=failure.row_ids,
        error_type=type(failure.error).__name__,
        message=hide_message(world.in_process() + str(failure.error)[:2_000]),
        traceback_text=hide_message(failure.traceback_text),
        peak_memory_bytes=peak_memory_bytes(engine.device) if engine is not None else None,
    )
