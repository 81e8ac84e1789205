"""pilot's own training loop: token-weighted global loss, accumulation, unscale, measure, clip.

The arithmetic of a step is that of a plain PyTorch script: the sum of the token losses of all
micro-batches over all supervised tokens of the step, one backward per micro-batch, gradients
unscaled *before* they are measured and clipped. The probe only reads.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pilot.config import Config
from pilot.engines import MAX_WORLD_SIZE, seeds
from pilot.engines.base import Capabilities, Observer, Program
from pilot.engines.complete import CompleteRecipe, complete
from pilot.engines.group_rates import GroupRates
from pilot.engines.guard import guard
from pilot.engines.losses import StepLoss
from pilot.engines.native_state import put_state, take_state
from pilot.engines.own_optimizer import make_optimizer, make_scheduler, own_rates
from pilot.engines.precision import autocast, make_scaler, pick_device, to_device, weight_dtype
from pilot.engines.state import left_as_it_was
from pilot.engines.step_rows import make_batches, step_facts, step_resource
from pilot.engines.validation import expected_secs, validate_all
from pilot.own_rates import OwnRates
from pilot.probe import Probe
from pilot.recipe import Batch, Recipe
from pilot.records import Outcome, Resource, StepRecord, ValidationRecord
from pilot.restored import Restored
from pilot.schedule import full_schedule


class NativeEngine:
    """Trains a recipe step by step.

    Args:
        recipe: the built recipe (data and collator).
        config: the validated configuration of this arm.
        order: row ids in drawing order, int64, shape [steps * rows per step].
        first_step: the step (of the full run's count) that ``order`` begins with.
        observer: receives the events.
        attempt: the number of this attempt, written into validation records.
        with_probe: False trains without measuring (only for the overhead benchmark).
    """

    capabilities = Capabilities(
        can_replay=True,
        can_snapshot=True,
        can_branch=True,
        reports_row_ids=True,
        reports_pre_clip_norm=True,
        max_world_size=MAX_WORLD_SIZE["native"],
    )

    def __init__(
        self,
        recipe: Recipe | CompleteRecipe,
        config: Config,
        *,
        order: npt.NDArray[np.int64],
        first_step: int,
        observer: Observer,
        attempt: int = 1,
        with_probe: bool = True,
    ) -> None:
        self.config, self.observer = config, observer
        self.order, self.first_step, self.attempt = order, first_step, attempt
        self.step = first_step - 1
        self.device = pick_device(config.engine.device)
        self.dtype = weight_dtype(config.precision)
        seeds.seed_everything(config.pilot.seed)
        with guard("build", step=None, row_ids=()):
            self.recipe = complete(recipe, config)
            built = self.recipe.build_model("full")
            self.built_dtypes = sorted({str(p.dtype)[6:] for p in built.parameters()})
            self.model = built.to(self.device, self.dtype)
            self.trainable = [p for p in self.model.parameters() if p.requires_grad]
            if not self.trainable:
                raise ValueError("the model has no trainable parameter: everything is frozen")
            self.optimizer = make_optimizer(self.recipe.own, config, self.model)
            self.rates = GroupRates(self.optimizer)
            num_steps = full_schedule(config, self.recipe.num_rows or 0).schedule_steps
            self.rates.follow(make_scheduler(self.recipe.own, self.optimizer, num_steps))
        if self.recipe.stream is not None:
            self.capabilities = dataclasses.replace(self.capabilities, reports_row_ids=False)
        self.scaler = make_scaler(config.precision, self.device)
        self.probe = Probe(self.model) if with_probe else None
        self.restored: Restored | None = None
        self._step_started = time.perf_counter()
        self._late: Resource | None = None

    # ---- requests

    def run(self, program: Program) -> Outcome:
        """Do the steps that ``program`` asks for, at its rates; returns its result."""
        while True:
            try:
                request = next(program)
            except StopIteration as done:
                outcome: Outcome = done.value
                return outcome
            self.train_step(request.learning_rate, forced=request.forced)

    def request_validation(self, at: str) -> list[ValidationRecord]:
        """Evaluate all validation sets now, without moving the run's random state."""
        self.flush()
        records = validate_all(self, at)
        self._step_started = time.perf_counter()
        return records

    def validation_secs(self) -> float:
        """Expected seconds of one validation of all sets, from its first batch."""
        return expected_secs(self)

    def own_rates(self) -> OwnRates | None:
        """What the recipe's own scheduler plans; None: this loop uses the rates it is given."""
        steps = full_schedule(self.config, self.recipe.num_rows or 0).schedule_steps
        return own_rates(self.recipe.own, self.config, self.model, steps)

    def change_groups(
        self, rate_scales: Sequence[float], weight_decays: Sequence[float] | None = None
    ) -> None:
        """Nothing: optimizer and rates are built from this arm's own configuration."""

    def snapshot(self) -> dict[str, Any]:
        """The exact state; frozen weights are left out (the recipe builds them again)."""
        self.flush()
        return take_state(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot, bit for bit."""
        put_state(self, state)

    def replay_step(self, state: Mapping[str, Any], row_ids: Sequence[int]) -> StepRecord:
        """Restore ``state``, train one step on ``row_ids`` and say what was measured."""
        if self.probe is None:
            raise ValueError("replay_step needs the probe")
        self.restore(state)
        rate = float(self.optimizer.param_groups[0]["lr"])
        if self.rates.has_scheduler:  # a warm-up's first step would not move
            rate = self.rates.begin(self.rates.peak, forced=True)
        self._train(self.step + 1, tuple(row_ids), rate)
        record = self.probe.collect()
        assert record is not None  # _train has just queued it
        return record

    # ---- the loop

    def train_step(self, learning_rate: float, *, forced: bool = False) -> None:
        """Do the next step, at ``learning_rate`` unless the recipe's scheduler has its own."""
        step = self.step + 1
        row_ids = self.rows_of(step)
        rate = self.rates.begin(learning_rate, forced=forced)
        self._train(step, row_ids, rate)
        self.rates.end()
        self.step = step

    def rows_of(self, step: int) -> tuple[int, ...]:
        """The row ids of ``step``, from the order; of a stream the places from its start."""
        width = self.config.batch.micro_batch_size * self.config.batch.grad_accum_steps
        if self.recipe.stream is not None:
            return tuple(range((step - 1) * width, step * width))
        begin = (step - self.first_step) * width
        return tuple(int(i) for i in self.order[begin : begin + width])

    def try_rows(self, row_ids: Sequence[int]) -> float:
        """Forward and backward on one micro-batch, no step; the run is left as it was."""
        step, rows = self.step + 1, tuple(row_ids)
        with left_as_it_was(self.model), guard("longest sample", step=step, row_ids=row_ids):
            made = make_batches(self.recipe, step, rows, max(1, len(rows)), self._move)
            self.model.train()
            total = StepLoss(self.recipe, [max(1, count) for count in made.counts])
            with autocast(self.config.precision, self.device):
                loss, recorded = total.part(self.model, made.batches[0], len(rows))
            if loss is not None:
                loss.backward()  # type: ignore[no-untyped-call]
            self._zero_grad()
        units = 1 if total.is_mean else max(1, total.num_supervised)
        return float(recorded.detach().sum()) / units

    def flush(self) -> None:
        """Hand out the record of the last step, if it has not been yet."""
        record = self.probe.collect() if self.probe else None
        if record is not None and self._late is not None:
            self.observer.on_step(record, self._late)
            self._late = None

    def _train(self, step: int, row_ids: tuple[int, ...], learning_rate: float) -> None:
        size = self.config.batch.micro_batch_size
        rows = make_batches(self.recipe, step, row_ids, size, self._move)
        self.model.train()
        self._zero_grad()
        if self.probe:
            self.probe.start_step(rows.batches)
        loss = StepLoss(self.recipe, rows.counts)
        for chunk, batch in zip(rows.row_ids, rows.batches, strict=True):
            self._backward(step, chunk, batch, loss)
        loss.finish(self.trainable)
        self.flush()  # the step before: its numbers have long arrived
        scale = float(self.scaler.get_scale()) if self.scaler.is_enabled() else None
        self._update(step, row_ids)
        skipped = scale is not None and float(self.scaler.get_scale()) < scale
        if self.probe:
            with guard("facts", step=step, row_ids=row_ids):
                facts = step_facts(
                    self.recipe,
                    rows,
                    step=step,
                    learning_rate=learning_rate,
                    num_supervised=loss.num_supervised,
                )
            self.probe.end_step(facts, loss_scale=scale, skipped=skipped, is_mean=loss.is_mean)
            self._note_time(step, facts.num_tokens)

    def _backward(self, step: int, row_ids: Sequence[int], batch: Batch, total: StepLoss) -> None:
        with (
            guard("forward", step=step, row_ids=row_ids),
            autocast(self.config.precision, self.device),
        ):
            loss, recorded = total.part(self.model, batch, len(row_ids))
        with guard("backward", step=step, row_ids=row_ids):
            if loss is not None:
                self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if self.probe:
            self.probe.add_losses(recorded)
        self.observer.on_micro_batch(row_ids, recorded.detach(), total.num_supervised)

    def _move(self, batch: Batch) -> Batch:
        return to_device(batch, self.device, self.dtype)

    def _zero_grad(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        for param in self.trainable:  # also those that the recipe's own optimizer leaves out
            param.grad = None

    def _update(self, step: int, row_ids: Sequence[int]) -> None:
        """Unscale, measure, clip, step: in this order."""
        limit = self.config.optim.max_grad_norm
        with guard("optimizer", step=step, row_ids=row_ids):
            self.scaler.unscale_(self.optimizer)
            if self.probe:
                norm, norms = self.probe.grads_ready()
                self.observer.on_grads_ready(norm, norms)
                if limit is not None:
                    torch.nn.utils.clip_grads_with_norm_(self.trainable, limit, norm)
                    self.probe.clipped(limit)
            elif limit is not None:
                torch.nn.utils.clip_grad_norm_(self.trainable, limit)
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def _note_time(self, step: int, num_tokens: int) -> None:
        now = time.perf_counter()
        secs, self._step_started = now - self._step_started, now
        self._late = step_resource(step, secs, num_tokens, self.device)
