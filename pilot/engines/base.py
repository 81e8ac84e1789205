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

from pilot.errors import Mistake, RecipeFailure
from pilot.records import Outcome, Resource, StepRecord, ValidationRecord

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from pilot.folder import PilotFolder
    from pilot.own_rates import OwnRates
    from pilot.probe import Probe
    from pilot.recipe import RowFacts
    from pilot.restored import Restored
    from pilot.view import RowTable


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


class Workload(Protocol):
    """What the user trains, as an engine sees it before any step: rows, sets, and how to begin."""

    @property
    def num_rows(self) -> int | None:
        """Training rows; None: a stream, whose rows have no ids and no known number."""
        ...

    @property
    def goes_back(self) -> bool:
        """Whether rows that were trained on can be had again: for a branch, a replayed step."""
        ...

    @property
    def validation_rows(self) -> Mapping[str, int]:
        """Rows of each validation set, the primary one first."""
        ...

    def require_contract(self) -> None:
        """Check that the user's code gives what is used.

        Raises:
            ConfigError: names everything that is missing or of the wrong kind.
        """
        ...

    def model_mistakes(self, model: torch.nn.Module) -> list[Mistake]:
        """What can be wrong only with the model there: rates that the user's code gives."""
        ...

    def facts(self) -> list[RowFacts]:
        """Source and length of every training row; empty for a stream."""
        ...

    def audit(self, vocab_size: int | None, max_positions: int | None) -> list[dict[str, Any]]:
        """What the label audit found in each set (``pilot/data/audit.py``).

        Of a stream the first rows are looked at.
        """
        ...

    def digests(self) -> list[dict[str, Any]]:
        """What binds the pilot to data that no file holds; empty where the files are bound."""
        ...

    def changed_data(self, surveyed: Sequence[Mapping[str, Any]]) -> list[str]:
        """In what the data are not the ``surveyed`` digests, one line for each set."""
        ...

    def hold_out(self, folder: PilotFolder, rows: RowTable) -> dict[str, Any] | None:
        """Without a validation set: hold out training rows, write which ones into ``folder``.

        ``rows`` are the surveyed training rows. Returns ``mode``, ``num_rows`` and ``refused`` (why
        none); None: there is a set.
        """
        ...

    def order_is_fixed(self) -> bool:
        """Whether ``own_order`` is what every process will draw."""
        ...

    def own_order(self, num_rows: int) -> npt.NDArray[np.int64] | None:
        """The first ``num_rows`` row ids of the full run's own loader; None: pilot draws them."""
        ...

    def run_facts(self) -> Mapping[str, Any]:
        """What says which run this is beside configuration, code and data: for the fingerprint."""
        ...

    def make_engine(
        self,
        *,
        order: npt.NDArray[np.int64],
        first_step: int,
        observer: Observer,
        attempt: int = 1,
    ) -> Engine:
        """An engine that begins with ``first_step`` on the rows of ``order``."""
        ...
