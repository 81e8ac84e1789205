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
_REMEDIES = {
    "num_supervised": "sum over the positions of each example, not over the batch",
    "losses": "sum over the positions of each example, not over the batch; a mean, or a sum and "
    "its count, is what loss(model, batch) returns",
}


class ContractError(ValueError):
    """Something in a recipe is not as the contract says: what, its value, the rule, the remedy."""

    def __init__(self, what: str, value: str, rule: str, remedy: str) -> None:
        self.what, self.value, self.rule, self.remedy = what, value, rule, remedy
        super().__init__(f"{what} {rule}; got {value}")


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
        ContractError: ``values`` is not a tensor of shape [num_examples], or counts are no whole
            numbers.
    """
    if what == "num_supervised" and isinstance(values, torch.Tensor) and values.is_floating_point():
        raise ContractError(what, str(values.dtype), "must return whole numbers", "add .long()")
    shape = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
    if shape != (num_examples,):
        rule = f"must return a tensor of shape ({num_examples},), one value per example"
        raise ContractError(what, f"shape {shape}", rule, _REMEDIES.get(what, "see the contract"))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's, the GPU's or the CPU allocator's way of saying so."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(w in str(error).lower() for w in _MEMORY_WORDS)
