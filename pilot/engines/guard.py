"""Keeps the recipe's failures apart from pilot's own: calls into a recipe run in ``guard``."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from pilot.errors import PilotError, RecipeFailure

_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "bad_alloc")
_MAX_TRACEBACK_CHARS = 8_000


@contextmanager
def guard(where: str, *, step: int | None, row_ids: Sequence[int]) -> Iterator[None]:
    """Turn any exception of the recipe's code into a ``RecipeFailure`` that carries its place."""
    try:
        yield
    except (PilotError, RecipeFailure):
        raise
    except Exception as error:
        raise RecipeFailure(
            where,
            step=step,
            row_ids=row_ids,
            error=error,
            out_of_memory=is_out_of_memory(error),
            traceback_text=traceback.format_exc()[-_MAX_TRACEBACK_CHARS:],
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's, the GPU's or the CPU allocator's way of saying so."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(w in str(error).lower() for w in _MEMORY_WORDS)
