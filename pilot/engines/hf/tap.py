"""Measures the optimizer steps of a ``Trainer`` that runs its own loop. It only reads.

Where each number comes from (the events of one step, in order):

* the batches of a step: ``get_batch_samples``, before their first forward pass;
* the loss: what ``training_step`` returns, summed over the micro-batches. The Trainer's own log
  hides a NaN behind the losses before it (``logging_nan_inf_filter``);
* the gradient norm: before the step's clipping (``clipping.py``), unscaled. At
  ``on_pre_optimizer_step`` gradients are clipped already;
* the learning rate: the optimizer's own (its first parameter group's) when ``step`` is called,
  whoever set it;
* the update: the weights after ``optimizer.step``, with those of the step before.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from pilot.engines.hf import sharded
from pilot.engines.hf.clipping import Clipping
from pilot.engines.hf.late_records import LateRecords, Listener
from pilot.engines.hf.place import DataPlace
from pilot.engines.hf.ranks import over_ranks
from pilot.engines.hf.rows import Rows, contents_of, count_tokens
from pilot.engines.hf.used_rates import UsedRates
from pilot.probe import Probe
from pilot.probe_record import StepFacts


class Tap:
    """Sits on one Trainer from ``attach`` on.

    Args:
        trainer: the Trainer; its model is where it will be trained.
        on_step: receives every record, one step late.
        source_of: the source of a row, by its id.
        keeps_random: whether random states are noted for snapshots.
    """

    def __init__(
        self,
        trainer: Any,
        on_step: Listener,
        source_of: Callable[[int], str] = lambda row: "train",
        *,
        keeps_random: bool = False,
    ) -> None:
        self.trainer, self.on_step = trainer, on_step
        self.model: torch.nn.Module = trainer.accelerator.unwrap_model(trainer.model)
        self.hides_tensors = sharded.hides_tensors(trainer)
        watched = torch.nn.Module() if self.hides_tensors else self.model
        self.probe = Probe(watched, trainer.args.device)
        self._records = LateRecords(self.probe, source_of)
        self.step = 0
        self.forced_rate: float | None = None
        self.rates = UsedRates()
        self.on_error: Callable[[BaseException], None] = _nothing
        # What measures inside the Trainer's calls raises its errors where they happen; where the
        # run must go on whatever happens to its measuring, a context that keeps errors.
        self.measuring: Callable[[], contextlib.AbstractContextManager[Any]] = (
            contextlib.nullcontext
        )
        self.step_batches: list[Rows] = []
        self.place = "build"
        self.data = DataPlace(keeps_random=keeps_random)
        self._counts = torch.zeros(3, dtype=torch.float64)
        self._contents: torch.Tensor | None = None
        self._clipping = Clipping(self)
        self._told: BaseException | None = None
        self._in_step = False
        self._scale: float | None = None
        self._undo: list[tuple[Any, str, Any, Any]] = []

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

    def attach(
        self, loader: Any, *, skip_batches: int = 0, resumed: Mapping[str, Any] | None = None
    ) -> None:
        """Wrap the Trainer's methods; to be called when model and optimizer are prepared.

        Args:
            loader: the prepared training loader.
            skip_batches: batches that a resumed Trainer draws and does not train on.
            resumed: the snapshot that it goes on from, where it is one of pilot's.
        """
        trainer = self.trainer
        self.data.attach(loader, skip_batches, resumed)
        self._original_batches = trainer.get_batch_samples
        self.replace(trainer, "get_batch_samples", self._get_batch_samples)
        step = functools.partial(self._training_step, trainer.training_step)
        self.replace(trainer, "training_step", step)
        self._clipping.attach()
        for owner, name, place in (
            (trainer.callback_handler, "call_event", "callback"),
            (trainer, "evaluate", "evaluation"),
            (trainer, "_run_epoch", ""),
        ):
            if hasattr(owner, name):
                call = functools.partial(self._in_place, getattr(owner, name), place)
                self.replace(owner, name, call)
        self.place = "run"
        self.restart_clock()

    def replace(self, owner: Any, name: str, method: Callable[..., Any]) -> None:
        """Put ``method`` in the place of one of ``owner``'s, until ``detach``."""
        before = vars(owner).get(name)
        setattr(owner, name, method)
        self._undo.append((owner, name, method, before))

    def detach(self) -> None:
        """Give the Trainer its own methods back; where somebody wrapped ours since, ours stays."""
        for owner, name, method, before in reversed(self._undo):
            if vars(owner).get(name) is method:
                vars(owner).pop(name)
                if before is not None:
                    setattr(owner, name, before)
        self._undo.clear()

    def epoch_begins(self) -> None:
        """The loader is about to draw an epoch's first batch, or goes on within a resumed one."""
        self.data.epoch_begins(self.step)

    # ---- the Trainer's own calls

    def _get_batch_samples(self, iterator: Any, num_batches: int, *rest: Any, **more: Any) -> Any:
        self.place, self.step_batches = "collate", []
        with self.watched():
            samples = self._original_batches(iterator, num_batches, *rest, **more)
        with self.measuring():
            batches = samples[0]
            self.begin_step(batches, self.data.take(len(batches)))
        return samples

    @property
    def failed_step(self) -> int:
        """The step that was worked on when something was raised."""
        return self.step + 1 if self._in_step or self.place == "collate" else self.step

    def failed_rows(self) -> Rows:
        """The rows that were worked on when something was raised."""
        return self.data.newest() if self.place == "collate" else self.row_ids

    def samples_of(self, batches: Sequence[Any]) -> Any:
        """What the Trainer's ``get_batch_samples`` makes of batches: they, and their items."""
        return self._original_batches(iter(batches), len(batches), self.trainer.args.device)

    def begin_step(self, batches: Sequence[Any], drawn: list[Rows]) -> None:
        """A step's batches are there; nothing of it has been done."""
        self.place, self.step_batches, self._in_step = "training_step", drawn, True
        self._counts = count_tokens(self.trainer, batches)
        self._contents = None if drawn else contents_of(batches)
        self.probe.start_step(batches)

    def _training_step(
        self, original: Any, model: Any, inputs: Any, *rest: Any, **more: Any
    ) -> Any:
        self.place = "training_step"
        self._clipping.begin()
        with self.watched():
            loss = original(model, inputs, *rest, **more)
        with self.measuring():
            self.probe.add_losses(_number(loss, self.probe.device))
        return loss

    def _in_place(self, original: Any, place: str, *args: Any, **more: Any) -> Any:
        """A call of the Trainer in which the user's code may raise."""
        before = self.place
        self.place = place or before
        with self.watched():
            result = original(*args, **more)
        if self.place == place:
            self.place = before
        return result

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Tell of an exception on its way through the Trainer's loop."""
        try:
            yield
        except BaseException as error:
            if error is not self._told:  # the innermost place is the right one
                self._told = error
                self.on_error(error)
            raise

    # ---- events, in the order of a step

    def before_optimizer(self) -> None:
        """Gradients are clipped, the optimizer is about to step: what rate does it use?"""
        self.place = "optimizer"
        self._clipping.measure()  # a loop that clips by itself, or not at all
        self.rates.begin(self.optimizer, self.forced_rate)
        scaler = self.trainer.accelerator.scaler
        self._scale = float(scaler.get_scale()) if scaler is not None else None
        self.flush()

    def after_optimizer(self) -> None:
        """The optimizer has stepped: queue the step's numbers."""
        scaler = self.trainer.accelerator.scaler
        skipped = self._scale is not None and float(scaler.get_scale()) < self._scale
        rows = self.row_ids
        self.probe.loss_sum, self._counts = over_ranks(self.probe.loss_sum, self._counts)
        self._records.send_rows(self.step_batches, self.trainer.args, self._counts.device)
        facts = StepFacts(
            step=self.step + 1,
            learning_rate=self.rates.end(),
            num_supervised_tokens=0,
            num_tokens=0,
            row_ids=rows,
            longest_tokens=0,
            source_counts=self._records.sources(rows),
        )
        self.probe.end_step(
            facts,
            loss_scale=self._scale,
            skipped=skipped,
            is_mean=True,
            counts=self._counts,
            contents=self._contents,
        )
        self.step, self._in_step = self.step + 1, False
        self._records.step_ended(self.step)

    def flush(self) -> None:
        """Hand out the record of the last step, if it has not been yet."""
        self._records.hand_out(self.on_step)

    def restart_clock(self) -> None:
        """The seconds until now belong to no step (a validation, a saving)."""
        self._records.restart_clock()


def _number(loss: Any, device: torch.device) -> torch.Tensor:
    """What a ``training_step`` returned as a number; the Trainer itself refuses what is none."""
    if isinstance(loss, torch.Tensor):
        return loss
    value = float(loss) if isinstance(loss, (int, float)) else float("nan")
    return torch.tensor(value, dtype=torch.float64, device=device)


def _nothing(error: BaseException) -> None:
    """Nobody asked to be told."""
