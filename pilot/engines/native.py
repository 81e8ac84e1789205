"""pilot's own training loop: token-weighted global loss, accumulation, unscale, measure, clip.

The arithmetic of a step is that of a plain PyTorch script: the sum of the token losses of all
micro-batches over all supervised tokens of the step, one backward per micro-batch, gradients
unscaled *before* they are measured and clipped. The probe only reads.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pilot.config import Config
from pilot.engines import MAX_WORLD_SIZE, seeds
from pilot.engines.base import Capabilities, Observer, Program
from pilot.engines.guard import guard, require_shape
from pilot.engines.optimizer import build_optimizer
from pilot.engines.precision import autocast, make_scaler, pick_device, to_device, weight_dtype
from pilot.engines.state import copy_state, load_model_state, model_state
from pilot.engines.validation import evaluate, pick_rows
from pilot.memory import peak_memory_bytes
from pilot.probe import Probe, StepFacts
from pilot.recipe import Recipe
from pilot.records import Outcome, Resource, StepRecord, ValidationRecord


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
        recipe: Recipe,
        config: Config,
        *,
        order: npt.NDArray[np.int64],
        first_step: int,
        observer: Observer,
        attempt: int = 1,
        with_probe: bool = True,
    ) -> None:
        self.recipe, self.config, self.observer = recipe, config, observer
        self.order, self.first_step, self.attempt = order, first_step, attempt
        self.step = first_step - 1
        self.device = pick_device(config.engine.device)
        self.dtype = weight_dtype(config.precision)
        seeds.seed_everything(config.pilot.seed)
        with guard("build", step=None, row_ids=()):
            built = recipe.build_model("full")
            self.built_dtypes = sorted({str(p.dtype)[6:] for p in built.parameters()})
            self.model = built.to(self.device, self.dtype)
            self.trainable = [p for p in self.model.parameters() if p.requires_grad]
            if not self.trainable:
                raise ValueError("the model has no trainable parameter: everything is frozen")
        optim = config.optim.model_dump(by_alias=True)
        self.optimizer = build_optimizer(optim, self.trainable)
        self.scaler = make_scaler(config.precision, self.device)
        self.probe = Probe(self.model) if with_probe else None
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
            self.train_step(request.learning_rate)

    def request_validation(self, at: str) -> list[ValidationRecord]:
        """Evaluate all validation sets now, without moving the run's random state."""
        self.flush()
        state, records = seeds.random_state(), []
        for index, (name, examples) in enumerate(self.recipe.validation.items()):
            started = time.perf_counter()
            rows = pick_rows(
                len(examples), self.config.pilot.validation_rows, self.config.pilot.data_seed
            )
            sums, counts = evaluate(self, name, examples, rows)
            record = ValidationRecord(
                at=at,
                step=self.step,
                name=name,
                primary=index == 0,
                loss=sum(sums) / sum(counts) if sum(counts) else float("nan"),
                loss_sums=tuple(sums),
                token_counts=tuple(counts),
                attempt=self.attempt,
            )
            secs = time.perf_counter() - started
            memory = peak_memory_bytes(self.device)
            resource = Resource(
                kind="validation", step=self.step, secs=secs, peak_memory_bytes=memory
            )
            self.observer.on_validation(record, resource)
            records.append(record)
        seeds.set_random_state(state)
        self._step_started = time.perf_counter()
        return records

    def validation_secs(self) -> float:
        """Expected seconds of one validation of all sets, from its first batch."""
        begun, size = time.perf_counter(), self.config.batch.micro_batch_size
        limits = (self.config.pilot.validation_rows, self.config.pilot.data_seed)
        total = sum(len(pick_rows(len(r), *limits)) for r in self.recipe.validation.values())
        if total:
            examples = next(iter(self.recipe.validation.values()))
            chunk = [examples[i] for i in range(min(size, len(examples)))]
            with guard("validation", step=None, row_ids=()), torch.no_grad():
                batch = to_device(self.recipe.collate(chunk), self.device, self.dtype)
                self.recipe.losses(self.model, batch)
        return (time.perf_counter() - begun) * -(-total // size)

    def snapshot(self) -> dict[str, Any]:
        """The exact state: trainable tensors and buffers, optimizer, scaler, random states, step.

        Frozen weights are left out: the recipe builds them again (LoRA: adapters alone).
        """
        self.flush()
        return {
            "step": self.step,
            **model_state(self.model),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "random": seeds.random_state(),
            "probe": self.probe.state_dict() if self.probe else {},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot, bit for bit."""
        load_model_state(self.model, state)
        # The optimizer keeps what it is given: without a copy, training would change the snapshot.
        self.optimizer.load_state_dict(copy_state(state["optimizer"]))
        if state["scaler"]:
            self.scaler.load_state_dict(dict(state["scaler"]))
        self.step = int(state["step"])
        if self.probe:
            self.probe.load_state_dict(state["probe"])
        seeds.set_random_state(state["random"])

    def replay_step(self, state: Mapping[str, Any], row_ids: Sequence[int]) -> StepRecord:
        """Restore ``state``, train one step on ``row_ids`` and say what was measured."""
        if self.probe is None:
            raise ValueError("replay_step needs the probe")
        self.restore(state)
        self._train(self.step + 1, tuple(row_ids), self.optimizer.param_groups[0]["lr"])
        record = self.probe.collect()
        assert record is not None  # _train has just queued it
        return record

    # ---- the loop

    def train_step(self, learning_rate: float) -> None:
        """Do the next step at ``learning_rate``; the record of the step before is handed out."""
        step = self.step + 1
        row_ids = self.rows_of(step)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self._train(step, row_ids, learning_rate)
        self.step = step

    def rows_of(self, step: int) -> tuple[int, ...]:
        """The row ids of ``step``, from the order."""
        width = self.config.batch.micro_batch_size * self.config.batch.grad_accum_steps
        begin = (step - self.first_step) * width
        return tuple(int(i) for i in self.order[begin : begin + width])

    def try_rows(self, row_ids: Sequence[int]) -> float:
        """Forward and backward on one micro-batch, no step; the run is left as it was."""
        state = seeds.random_state()
        buffers = {name: b.detach().clone() for name, b in self.model.named_buffers()}
        with guard("longest sample", step=self.step + 1, row_ids=row_ids):
            batch = self.recipe.collate([self.recipe.train[i] for i in row_ids])
            count = int(self.recipe.num_supervised(batch).sum())
            moved = to_device(batch, self.device, self.dtype)
            self.model.train()
            with autocast(self.config.precision, self.device):
                total = self.recipe.losses(self.model, moved).sum()
            (total / max(1, count)).backward()  # type: ignore[no-untyped-call]
            loss = float(total.detach()) / max(1, count)
        self.optimizer.zero_grad(set_to_none=True)
        for name, buffer in self.model.named_buffers():
            buffer.copy_(buffers[name])  # running statistics are state of the run
        seeds.set_random_state(state)
        return loss

    def flush(self) -> None:
        """Hand out the record of the last step, if it has not been yet."""
        record = self.probe.collect() if self.probe else None
        if record is not None and self._late is not None:
            self.observer.on_step(record, self._late)
            self._late = None

    def _train(self, step: int, row_ids: tuple[int, ...], learning_rate: float) -> None:
        size = self.config.batch.micro_batch_size
        chunks = [row_ids[i : i + size] for i in range(0, len(row_ids), size)]
        batches, counts = [], []
        for chunk in chunks:
            with guard("collate", step=step, row_ids=chunk):
                batch = self.recipe.collate([self.recipe.train[i] for i in chunk])
                supervised = self.recipe.num_supervised(batch)
                require_shape("num_supervised", supervised, len(chunk))
                counts.append(int(supervised.sum()))
                batches.append(to_device(batch, self.device, self.dtype))
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        if self.probe:
            self.probe.start_step(batches)
        for chunk, batch in zip(chunks, batches, strict=True):
            self._backward(step, chunk, batch, sum(counts))
        self.flush()  # the step before: its numbers have long arrived
        scale = float(self.scaler.get_scale()) if self.scaler.is_enabled() else None
        self._update(step, row_ids)
        skipped = scale is not None and float(self.scaler.get_scale()) < scale
        if self.probe:
            facts = self._facts(step, row_ids, learning_rate, sum(counts))
            self.probe.end_step(facts, loss_scale=scale, skipped=skipped)
            self._note_time(step, facts.num_tokens)

    def _backward(
        self, step: int, row_ids: Sequence[int], batch: Mapping[str, torch.Tensor], total: int
    ) -> None:
        with guard("forward", step=step, row_ids=row_ids):
            with autocast(self.config.precision, self.device):
                sums = self.recipe.losses(self.model, batch)
            require_shape("losses", sums, len(row_ids))
            loss = sums.sum() / total if total else sums.sum() * float("nan")
        with guard("backward", step=step, row_ids=row_ids):
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if self.probe:
            self.probe.add_losses(sums)
        self.observer.on_micro_batch(row_ids, sums.detach(), total)

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

    def _facts(
        self, step: int, row_ids: tuple[int, ...], learning_rate: float, supervised: int
    ) -> StepFacts:
        rows = [self.recipe.facts(self.recipe.train[i]) for i in row_ids]
        return StepFacts(
            step=step,
            learning_rate=learning_rate,
            num_supervised_tokens=supervised,
            num_tokens=sum(row.num_tokens for row in rows),
            row_ids=row_ids,
            longest_tokens=max((row.num_tokens for row in rows), default=0),
            source_counts=dict(sorted(Counter(row.source for row in rows).items())),
        )

    def _note_time(self, step: int, num_tokens: int) -> None:
        now = time.perf_counter()
        secs, self._step_started = now - self._step_started, now
        self._late = Resource(
            kind="step",
            step=step,
            secs=secs,
            tokens_per_sec=num_tokens / secs if secs > 0 else None,
            peak_memory_bytes=peak_memory_bytes(self.device)
            if self.device.type == "cuda"
            else None,
        )
