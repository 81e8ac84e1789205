"""Measures the optimizer steps of a ``Trainer`` that runs its own loop. It only reads.

Where each number comes from (the events of one step, in order):

* the batches of a step: ``get_batch_samples``, before their first forward pass;
* the loss: what ``training_step`` returns, summed over the micro-batches. The Trainer's own log
  hides a NaN behind the losses before it (``logging_nan_inf_filter``);
* the gradient norm: inside ``accelerator.clip_grad_norm_``, unscaled and before clipping. At
  ``on_pre_optimizer_step`` gradients are clipped already;
* the learning rate: the optimizer's own at ``on_pre_optimizer_step``, whoever set it;
* the update: the weights after ``optimizer.step``, with those of the step before.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from pilot.engines.hf import sharded
from pilot.engines.hf.ranks import (
    capacity_of,
    num_ranks,
    over_ranks,
    received_rows,
    send_rows,
)
from pilot.engines.hf.rows import (
    BatchList,
    Rows,
    count_tokens,
    inner_batch_sampler,
    record_batches,
)
from pilot.memory import peak_memory_bytes
from pilot.probe import Probe, StepFacts, row_hash
from pilot.records import Resource, StepRecord

Listener = Callable[[StepRecord, Resource], None]


class Tap:
    """Sits on one Trainer from ``attach`` on.

    Args:
        trainer: the Trainer; its model is where it will be trained.
        on_step: receives every record, one step late.
        source_of: the source of a row, by its id.
    """

    def __init__(
        self,
        trainer: Any,
        on_step: Listener,
        source_of: Callable[[int], str] = lambda row: "train",
    ) -> None:
        self.trainer, self._on_step, self._source_of = trainer, on_step, source_of
        self.model: torch.nn.Module = trainer.accelerator.unwrap_model(trainer.model)
        self.hides_tensors = sharded.hides_tensors(trainer)
        watched = torch.nn.Module() if self.hides_tensors else self.model
        self.probe = Probe(watched, trainer.args.device)
        self.step = 0
        self.forced_rate: float | None = None
        self.on_error: Callable[[BaseException], None] = _nothing
        self.step_batches: list[Rows] = []
        self.place = "build"
        self.num_drawn = 0
        self.first_steps: set[int] = set()  # of an epoch
        self._drawn = BatchList()
        self._counts = torch.zeros(3, dtype=torch.float64)
        self._measured = False
        self._rate = 0.0
        self._scale: float | None = None
        self._late: Resource | None = None
        self._sent: torch.Tensor | None = None  # the rows of all processes, on their way
        self._step_started = time.perf_counter()

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer under accelerate's wrapper."""
        found: Any = self.trainer.optimizer
        while hasattr(found, "optimizer"):
            found = found.optimizer
        return found  # type: ignore[no-any-return]

    @property
    def row_ids(self) -> Rows:
        """The rows of the step that is being done, in their order; this process's own."""
        return tuple(row for batch in self.step_batches for row in batch)

    def attach(self, loader: Any, *, skip_batches: int = 0) -> None:
        """Wrap the Trainer's methods; to be called when model and optimizer are prepared.

        Args:
            loader: the prepared training loader.
            skip_batches: batches that a resumed Trainer draws and does not train on.
        """
        trainer = self.trainer
        self._skip = skip_batches
        self.num_drawn = skip_batches
        sampler = inner_batch_sampler(loader)
        if sampler is not None:
            record_batches(loader.batch_sampler, self._drawn)  # of this process
        self._original_batches = trainer.get_batch_samples
        trainer.get_batch_samples = self._get_batch_samples
        trainer.training_step = functools.partial(self._training_step, trainer.training_step)
        accelerator = trainer.accelerator
        accelerator.clip_grad_norm_ = functools.partial(self._clip, accelerator.clip_grad_norm_)
        self.place = "run"
        self._step_started = time.perf_counter()

    def epoch_begins(self) -> None:
        """The loader is about to draw an epoch's first batch, or goes on within a resumed one."""
        self.num_drawn = self._skip
        self.first_steps.add(self.step + 1)

    # ---- the Trainer's own calls

    def _get_batch_samples(self, iterator: Any, num_batches: int, *rest: Any, **more: Any) -> Any:
        self.place, self.step_batches = "collate", []
        with self._watched():
            samples = self._original_batches(iterator, num_batches, *rest, **more)
        if self._skip:
            self._drawn.take(self._skip)
            self._skip = 0
        batches = samples[0]
        self.num_drawn += len(batches)
        drawn = self._drawn.take(len(batches))
        self.begin_step(batches, drawn)
        return samples

    def failed_rows(self) -> Rows:
        """The rows that were worked on when something was raised."""
        ahead = tuple(row for batch in list(self._drawn)[-1:] for row in batch)
        return ahead if self.place == "collate" else self.row_ids

    def samples_of(self, batches: Sequence[Any]) -> Any:
        """What the Trainer's ``get_batch_samples`` makes of batches: they, and their items."""
        return self._original_batches(iter(batches), len(batches), self.trainer.args.device)

    def begin_step(self, batches: Sequence[Any], drawn: list[Rows]) -> None:
        """A step's batches are there; nothing of it has been done."""
        self.place, self.step_batches = "training_step", drawn
        self._counts = count_tokens(self.trainer, batches)
        self._measured = False
        self.probe.start_step(batches)

    def _training_step(
        self, original: Any, model: Any, inputs: Any, *rest: Any, **more: Any
    ) -> Any:
        self.place = "training_step"
        with self._watched():
            loss = original(model, inputs, *rest, **more)
        self.probe.add_losses(loss)
        return loss

    def _clip(
        self, original: Any, parameters: Any, max_norm: float, *rest: Any, **more: Any
    ) -> Any:
        self.place = "optimizer"
        accelerator = self.trainer.accelerator
        if accelerator.scaler is not None:  # once: torch refuses to unscale twice
            accelerator.unscale_gradients()
            accelerator.unscale_gradients = _nothing
        try:
            if not self.hides_tensors:
                self._measure()
            norm = original(parameters, max_norm, *rest, **more)
        finally:
            accelerator.__dict__.pop("unscale_gradients", None)
        if self.hides_tensors:
            self.probe.norm_given(norm)
            self._measured = True
        if 0.0 < float(max_norm) < float("inf"):
            self.probe.clipped(float(max_norm))
        return norm

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Tell of an exception on its way through the Trainer's loop."""
        try:
            yield
        except BaseException as error:
            self.on_error(error)
            raise

    def _measure(self) -> None:
        if not self._measured:
            if self.hides_tensors:
                self.probe.norm_given(None)
            else:
                self.probe.grads_ready()
            self._measured = True

    # ---- events, in the order of a step

    def before_optimizer(self) -> None:
        """Gradients are clipped, the optimizer is about to step: what rate does it use?"""
        self.place = "optimizer"
        self._measure()  # a loop that clips by itself, or not at all
        if self.forced_rate is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = self.forced_rate
        self._rate = float(self.optimizer.param_groups[0]["lr"])
        scaler = self.trainer.accelerator.scaler
        self._scale = float(scaler.get_scale()) if scaler is not None else None
        self.flush()

    def after_optimizer(self) -> None:
        """The optimizer has stepped: queue the step's numbers."""
        scaler = self.trainer.accelerator.scaler
        skipped = self._scale is not None and float(scaler.get_scale()) < self._scale
        rows = self.row_ids
        self.probe.loss_sum, self._counts = over_ranks(self.probe.loss_sum, self._counts)
        if num_ranks() > 1:
            capacity = capacity_of(self.trainer.args)
            self._sent = send_rows(self.step_batches, capacity, self._counts.device)
        facts = StepFacts(
            step=self.step + 1,
            learning_rate=self._rate,
            num_supervised_tokens=0,
            num_tokens=0,
            row_ids=rows,
            longest_tokens=0,
            source_counts=self._sources(rows),
        )
        self.probe.end_step(
            facts, loss_scale=self._scale, skipped=skipped, is_mean=True, counts=self._counts
        )
        self.step += 1
        self._note_time()

    def flush(self) -> None:
        """Hand out the record of the last step, if it has not been yet."""
        record = self.probe.collect()
        if record is not None and self._late is not None:
            late, self._late = self._late, None
            record = self._of_all(record)
            if record.num_tokens and late.secs > 0:
                late = Resource(
                    kind=late.kind,
                    step=late.step,
                    secs=late.secs,
                    tokens_per_sec=record.num_tokens / late.secs,
                    peak_memory_bytes=late.peak_memory_bytes,
                )
            self._on_step(record, late)

    def _of_all(self, record: StepRecord) -> StepRecord:
        """The record with the rows of all processes."""
        if self._sent is None:
            return record
        rows, self._sent = received_rows(self._sent), None
        return replace(
            record, row_ids=rows, row_hash=row_hash(rows), source_counts=self._sources(rows)
        )

    def _sources(self, rows: Rows) -> dict[str, int]:
        return dict(sorted(Counter(self._source_of(row) for row in rows).items()))

    def restart_clock(self) -> None:
        """The seconds until now belong to no step (a validation, a saving)."""
        self._step_started = time.perf_counter()

    def _note_time(self) -> None:
        now = time.perf_counter()
        secs, self._step_started = now - self._step_started, now
        cuda = self.probe.device.type == "cuda"
        peak = peak_memory_bytes(self.probe.device) if cuda else None
        self._late = Resource(kind="step", step=self.step, secs=secs, peak_memory_bytes=peak)


def _nothing(*args: Any, **more: Any) -> None:
    """In the place of a call that has been made already."""
