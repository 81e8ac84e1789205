"""Keeps the recipe's failures apart from pilot's own: calls into a recipe run in ``guard``."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from pilot.errors import PilotError, RecipeFailure

_MEMORY_WORDS = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "status_alloc_failed",
)
_MAX_TRACEBACK_CHARS = 8_000


@contextmanager
def guard(where: str, *, step: int | None, row_ids: Sequence[int]) -> Iterator[None]:
    """Turn any exception of the recipe's code into a ``RecipeFailure`` that carries its place."""
    try:
        yield
    except (PilotError, RecipeFailure):
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # whatever the recipe raises
        raise RecipeFailure(
            where,
            step=step,
            row_ids=row_ids,
            error=error,
            out_of_memory=is_out_of_memory(error),
            traceback_text=traceback.format_exc()[-_MAX_TRACEBACK_CHARS:],
        ) from error


def require_shape(what: str, values: object, num_examples: int) -> None:
    """The recipe contract: one value per example.

    Raises:
        ValueError: ``values`` is not a tensor of shape [num_examples].
    """
    if what == "num_supervised" and isinstance(values, torch.Tensor) and values.is_floating_point():
        raise ValueError(f"{what} must return whole numbers, got {values.dtype}")
    shape = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
    if shape != (num_examples,):
        raise ValueError(
            f"{what} must return a tensor of shape ({num_examples},), one value per example; "
            f"got {shape}"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's, the GPU's or the CPU allocator's way of saying so."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(w in str(error).lower() for w in _MEMORY_WORDS)
