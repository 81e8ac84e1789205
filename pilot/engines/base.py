"""The engine contract: the events of a training loop, in order, and what may be asked of it.

The loop of every engine, in pseudo-code::

    on_run_start
    for step in steps:
        for rows in micro_batches:
            forward, backward
            on_micro_batch(rows, loss, num_tokens)
        unscale
        on_grads_ready(pre-clip norm, per-tensor norms)
        clip, optimizer step
        on_step(record)                      # one step late: no extra device synchronisation
        on_validation(record)                # where the plan says so
    on_exception(failure)                    # the recipe raised: an outcome
    on_run_end

An engine may own this loop (``native``) or attach to one that somebody else owns. Observers watch;
they never change the user's mathematics. Only ``request_stop`` ends a run early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pilot.errors import RecipeFailure
from pilot.records import Resource, StepRecord, ValidationRecord

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What an engine can do; what it cannot is printed with the plan and in the verdict."""

    can_replay: bool
    can_snapshot: bool
    can_branch: bool
    reports_row_ids: bool
    reports_pre_clip_norm: bool
    max_world_size: int | None


class Observer:
    """Receives the events of a run; every method does nothing until overridden."""

    def on_run_start(self, step: int) -> None:
        """The loop is about to do ``step + 1``."""

    def on_micro_batch(
        self, row_ids: Sequence[int], loss_sums: torch.Tensor, num_tokens: int
    ) -> None:
        """One micro-batch has run backward; ``loss_sums`` has shape [rows], on the device."""

    def on_grads_ready(self, norm: torch.Tensor, tensor_norms: Sequence[torch.Tensor]) -> None:
        """All gradients of a step are there: unscaled, not yet clipped, on the device."""

    def on_step(self, record: StepRecord, resource: Resource) -> None:
        """A step has been measured (called one step late)."""

    def on_validation(self, record: ValidationRecord, resource: Resource) -> None:
        """A validation set has been evaluated."""

    def on_exception(self, failure: RecipeFailure) -> None:
        """The recipe's code raised, or memory ran out."""

    def on_run_end(self, step: int) -> None:
        """The loop has ended after ``step`` steps."""


class Engine(Protocol):
    """What may be asked of an engine."""

    capabilities: Capabilities

    def request_stop(self, reason: str) -> None:
        """End the run after the current step."""
        ...

    def request_validation(self, at: str) -> list[ValidationRecord]:
        """Evaluate all validation sets now, without moving the run's random state."""
        ...

    def snapshot(self) -> Mapping[str, Any]:
        """The exact state: weights, optimizer, scaler, random states, step."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot, bit for bit."""
        ...

    def replay_step(self, state: Mapping[str, Any], row_ids: Sequence[int]) -> StepRecord:
        """Restore ``state``, train one step on ``row_ids`` and return what was measured."""
        ...
