"""``pilot.PilotCallback``: pilot's records of any Trainer's run, from inside the user's own script.

    trainer = Trainer(..., callbacks=[pilot.PilotCallback(out_dir="pilot_records")])
    trainer.train()

Nothing of the run is changed: no stop, no other rate, no random number drawn. The folder is that of
a pilot whose baseline is the whole run, so ``python -m pilot diagnose DIR`` and ``judge DIR`` read
it; what only a pilot does (arms, a cool-down) is listed as not measured.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback

from pilot.engines import world
from pilot.engines.base import Observer
from pilot.engines.guard import is_out_of_memory
from pilot.engines.hf.describe import describe, write_folder
from pilot.engines.hf.ranks import require_everywhere
from pilot.engines.hf.tap import Tap
from pilot.engines.hf.validation import validate_all
from pilot.engines.recorder import Recorder
from pilot.errors import FolderError, UsageError
from pilot.experiments import movement
from pilot.folder import BASELINE, PilotFolder, count_attempts
from pilot.jsonl import write_json
from pilot.plan import BEFORE, COOLDOWN_END
from pilot.records import Outcome
from pilot.tracking.hide import hide_message


class PilotCallback(TrainerCallback):  # type: ignore[misc]
    """Writes pilot's records of the run that it is given to.

    Args:
        out_dir: a folder of its own, new or of the same run (a resumed one goes on in it).
        validation_rows: rows of each evaluation set that are evaluated before the first step, after
            the warm-up and at the end; 0: none. The run's random state is put back.
        name: the name of the run in reports.
    """

    def __init__(
        self, out_dir: str | Path, *, validation_rows: int = 256, name: str = "trainer"
    ) -> None:
        if 0 < validation_rows < 8 or validation_rows < 0:
            raise UsageError("validation_rows must be 0 or at least 8: fewer decide nothing")
        self.root, self.name = Path(out_dir), name
        self.validation_rows = validation_rows
        self._tap: Tap | None = None
        self._recorder: Recorder | None = None
        self._has_moved = False

    # ---- the Trainer's events

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Write plan and row table, sit on the Trainer, validate."""
        trainer, loader = _find_trainer(), more["train_dataloader"]
        require_everywhere(type(self).__name__)
        folder = PilotFolder(self.root).arm(BASELINE)
        attempt = count_attempts(folder) + 1 if state.is_world_process_zero else 1
        if attempt > 1 and not state.global_step:
            raise FolderError(
                self.root, "holds the records of another run", remedy="give a new out_dir"
            )
        run = describe(trainer, self.name, state.max_steps)
        self._arm, self._run, self._attempt = folder, run, attempt
        self._observer = Observer()  # other processes take their part in sums and validations
        if state.is_world_process_zero:
            write_folder(run, self.root)
            self._observer = self._recorder = Recorder(
                folder, attempt, start_step=state.global_step, pins_first_clip=False
            )
        self._tap = Tap(trainer, self._observer.on_step)
        self._tap.step, self._tap.on_error = state.global_step, self._failed
        self._weights = {} if self._tap.hides_tensors else movement.start_weights(self._tap)
        self._tap.attach(loader, skip_batches=_skipped(args, loader, state.global_step))
        if not state.global_step:
            self._validate(BEFORE)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The loader begins an epoch."""
        if self._tap is not None:
            self._tap.epoch_begins()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Gradients are there, and the rate."""
        if self._tap is not None:
            self._tap.before_optimizer()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The weights have moved; at the last step their gradients are still there to be asked."""
        if self._tap is not None:
            self._tap.after_optimizer()
            if self._tap.step == state.max_steps:
                self._measure_movement()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Validate where the plan says so."""
        if self._tap is not None:
            for at, step in self._run.plan.validations.items():
                if step == self._tap.step and at not in (BEFORE, COOLDOWN_END):
                    self._validate(at)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The last record, what moved, and the completion marker."""
        if self._tap is None:
            return
        self._tap.flush()
        self._measure_movement()
        if self._recorder is not None:
            ended = Outcome(status=Outcome.COMPLETED, last_step=self._tap.step)
            write_json(self._arm.outcome, ended)
            self._recorder.close()
        self._tap = None

    # ---- what is written

    def _validate(self, at: str) -> None:
        assert self._tap is not None
        if not self.validation_rows:
            return
        self._tap.flush()
        was_training = self._tap.model.training
        validate_all(
            self._tap.trainer,
            self._observer,
            at=at,
            step=self._tap.step,
            limit=self.validation_rows,
            data_seed=self._run.config.pilot.data_seed,
            attempt=self._attempt,
        )
        self._tap.model.train(was_training)
        self._tap.restart_clock()

    def _measure_movement(self) -> None:
        if self._tap is None or self._tap.hides_tensors:
            return
        if self._recorder is not None and not self._has_moved:
            self._recorder.evidence(movement.measure(self._tap, self._weights))
            self._has_moved = True

    def _failed(self, error: BaseException) -> None:
        """The user's code raised inside the loop: an outcome with its place; it goes on raising."""
        assert self._tap is not None
        self._tap.flush()
        if world.is_lost_peer(error):
            return  # what happened is known, and written, in another process
        text = "".join(traceback.format_exception(error))[-8_000:]
        memory = is_out_of_memory(error)
        outcome = Outcome(
            status=Outcome.OUT_OF_MEMORY if memory else Outcome.EXCEPTION,
            last_step=self._tap.step,
            where=self._tap.place,
            step=self._tap.step + 1,
            row_ids=self._tap.failed_rows(),
            error_type=type(error).__name__,
            message=hide_message(world.in_process() + str(error)[:2_000]),
            traceback_text=hide_message(text),
        )
        (write_json if self._recorder is not None else world.leave)(self._arm.outcome, outcome)


def _find_trainer() -> Trainer:
    """The Trainer whose loop calls: callbacks are not given it."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), Trainer):
            return frame.f_locals["self"]
        frame = frame.f_back
    raise UsageError("PilotCallback must be called by a Trainer's loop")


def _skipped(args: Any, loader: Any, done: int) -> int:
    """Batches that a Trainer resumed after ``done`` steps draws and drops."""
    if not done or args.ignore_data_skip or not hasattr(loader, "__len__"):
        return 0
    accumulate = int(args.gradient_accumulation_steps)
    steps_per_epoch = max(1, -(-len(loader) // accumulate))
    return done % steps_per_epoch * accumulate
