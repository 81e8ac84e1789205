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

An engine may own this loop (``native``) or attach to one that somebody else owns
(``transformers``). What an arm does is written once, as a *program*: a generator that validates,
saves and decides, and yields a request for every step. An engine that owns its loop drives the
program; one that is called back from a foreign loop goes on with it after each step. Observers
watch; they never change the user's mathematics.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pilot.errors import RecipeFailure
from pilot.records import Outcome, Resource, StepRecord, ValidationRecord

if TYPE_CHECKING:
    import torch

    from pilot.own_rates import OwnRates
    from pilot.probe import Probe
    from pilot.restored import Restored


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


@dataclass(frozen=True, kw_only=True)
class StepRequest:
    """One step that a program asks for.

    ``learning_rate`` is the planned one. An engine with its own loop uses it; one that attaches
    to the user's loop leaves the rate to the user's scheduler unless it is ``forced`` (a branch).
    ``keep_grads``: the step's gradients are looked at after it.
    """

    learning_rate: float
    forced: bool = False
    keep_grads: bool = False


# What an arm does, in order: it yields a request for every step, and goes on after that step.
Program = Generator[StepRequest, None, Outcome]


class Watched(Protocol):
    """A run that can be looked at, whoever owns its loop."""

    @property
    def step(self) -> int:
        """The last finished step."""
        ...

    @property
    def model(self) -> torch.nn.Module:
        """The model, unwrapped."""
        ...

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of the run."""
        ...

    @property
    def probe(self) -> Probe | None:
        """What measures the steps."""
        ...


class Engine(Watched, Protocol):
    """What may be asked of an engine. Everything that pilot does with a run goes through these.

    ``step`` is the last finished one, in the full run's count. ``model`` holds the parameters under
    their own names, without wrappers; ``optimizer`` and ``probe`` are those of the run.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        ...

    @property
    def built_dtypes(self) -> Sequence[str]:
        """The dtypes that the user's code gave the weights."""
        ...

    @property
    def restored(self) -> Restored | None:
        """What was restored of the user's checkpoint (``recipe.resume_from``); None: there is none.

        It is complete when the program runs. A restored snapshot of pilot's own says nothing.
        """
        ...

    def run(self, program: Program) -> Outcome:
        """Start the loop, do the steps that ``program`` asks for, and return its result.

        Everything in ``program`` runs while model and optimizer exist: before the first step, and
        after each one. A ``restore`` before ``run`` says where the loop begins.

        Raises:
            RecipeFailure: the user's code raised.
        """
        ...

    def flush(self) -> None:
        """Hand out the record of the last step, if it has not been yet."""
        ...

    def rows_of(self, step: int) -> tuple[int, ...]:
        """The row ids of the planned ``step``; empty where the engine does not know them.

        Of a stream that the engine draws itself: places from its start.
        """
        ...

    def try_rows(self, row_ids: Sequence[int]) -> float:
        """Forward and backward on one micro-batch without a step; returns its loss per token.

        Gradients, buffers and random states are put back.
        """
        ...

    def request_validation(self, at: str) -> list[ValidationRecord]:
        """Evaluate all validation sets now, without moving the run's random state."""
        ...

    def validation_secs(self) -> float:
        """Expected seconds of one ``request_validation``, from a small part of it."""
        ...

    def own_rates(self) -> OwnRates | None:
        """The rates that the user's own scheduler plans; None: the program gives every rate."""
        ...

    def change_groups(
        self, rate_scales: Sequence[float], weight_decays: Sequence[float] | None = None
    ) -> None:
        """Multiply the user's own rates, group by group, at every step; set weight decays.

        Only where there are ``own_rates``.
        """
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
