"""The records of one ``train()`` of the user's own Trainer; the run never ends because of them.

What is wrong before the first step is raised. From then on an error of recording (a full disk, a
batch of a kind that cannot be measured) is warned of once, recording stops and the folder says so.
In a run of several processes the tap goes on measuring: the others wait for its sums.
"""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pilot.engines import seeds, world
from pilot.engines.base import Observer
from pilot.engines.guard import is_out_of_memory
from pilot.engines.hf.bound import on_first_process
from pilot.engines.hf.describe import DescribedRun, describe
from pilot.engines.hf.outside_steps import hear_outside_steps
from pilot.engines.hf.ranks import require_everywhere
from pilot.engines.hf.recorded_folder import earlier_schedule, open_folder
from pilot.engines.hf.resume_said import skipped_batches
from pilot.engines.hf.tap import Tap
from pilot.engines.hf.validation import validate_all
from pilot.engines.recorder import Recorder
from pilot.errors import ConfigError, DiskFull, RecipeFailure, UsageError
from pilot.experiments import movement
from pilot.folder import BASELINE, PilotFolder, count_attempts
from pilot.jsonl import write_json
from pilot.plan import BEFORE, COOLDOWN_END, RUN_END
from pilot.records import Outcome
from pilot.tracking.hide import hide_message


class Recording:
    """Records one run, from ``begin`` to ``end``.

    Args:
        root: the folder.
        name: of the run.
        validation_rows: rows of each evaluation set, 0 for none.
    """

    def __init__(self, root: Path, name: str, validation_rows: int) -> None:
        self.root, self.name, self._limit = root, name, validation_rows
        self.arm = PilotFolder(root).arm(BASELINE)
        self.stopped = ""  # why nothing is recorded any more
        self._recorder: Recorder | None = None
        self._attempt = 1
        self._validated: set[str] = set()
        self._has_moved = self._has_failed = False

    def begin(self, trainer: Any, state: Any, loader: Any) -> None:
        """Write plan and row table, sit on the Trainer, validate.

        Raises:
            FolderError: the folder cannot be used; in every process.
        """
        require_everywhere("PilotCallback")
        done = self._begun_at = int(state.global_step)
        self.run = self._described(trainer, state.max_steps, loader, done)
        on_first_process(trainer, lambda: self._open(done))
        # Other processes take their part in sums and validations.
        self._observer: Observer = self._recorder or Observer()
        self.tap = Tap(trainer, self._observer.on_step, self.run.source_of)
        self.tap.step, self.tap.on_error = done, self._failed
        self.tap.measuring = self.kept
        self._weights = {} if self.tap.hides_tensors else movement.start_weights(self.tap)
        self.tap.attach(loader, skip_batches=skipped_batches(trainer.args, loader, done))
        hear_outside_steps(self.tap, trainer)
        if done == self.run.plan.start_step:
            with self.kept():
                self._validate(BEFORE)

    def _described(self, trainer: Any, max_steps: int, loader: Any, done: int) -> DescribedRun:
        try:
            return describe(
                trainer,
                self.name,
                max_steps,
                loader=loader,
                start_step=0 if count_attempts(self.arm) else done,
                counts=trainer.args.process_index == 0,
                planned=earlier_schedule(self.root, max_steps),
            )
        except ConfigError as error:
            text = f"pilot.PilotCallback cannot describe this run: {error}"
            raise UsageError(text) from error

    def _open(self, done: int) -> None:
        self._attempt, self._recorder = open_folder(self.run, self.root, done)

    # ---- during the run

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """What is wrong with recording ends the recording, not the run."""
        try:
            yield
        except Exception as error:
            self._give_up(error)

    def step_ended(self) -> None:
        """Validate where the plan says so."""
        for at, step in self.run.plan.validations.items():
            if step == self.tap.step and at not in (BEFORE, COOLDOWN_END):
                self._validate(at)

    def optimizer_stepped(self, max_steps: int) -> None:
        """The weights have moved; at the last step their gradients are still there to be asked."""
        self.tap.after_optimizer()
        if self.tap.step == max_steps:
            self._measure_movement()

    def end(self, best_is_loaded: bool) -> None:
        """The last record, what moved, and the completion marker."""
        self.tap.flush()
        self._measure_movement()
        early = self.tap.step < self.run.plan.stop_step
        if early and not best_is_loaded:
            self._validate(RUN_END)
        self.tap.detach()
        if self._recorder is not None:
            text = f"the Trainer ended at step {self.tap.step}" if early else ""
            outcome = Outcome(status=Outcome.COMPLETED, last_step=self.tap.step, message=text)
            write_json(self.arm.outcome, outcome)
            self._recorder.close()

    def _validate(self, at: str) -> None:
        if not self._limit or at in self._validated or self.stopped:
            return
        self.tap.flush()
        model, state = self.tap.model, seeds.random_state()
        was_training, place = model.training, self.tap.place
        try:
            validate_all(
                self.tap.trainer,
                self._observer,
                at=at,
                step=self.tap.step,
                limit=self._limit,
                data_seed=self.run.config.pilot.data_seed,
                attempt=self._attempt,
            )
            self._validated.add(at)
        except RecipeFailure as failure:
            if not isinstance(failure.error, Exception):
                raise failure.error from None  # the user's own Ctrl-C
            self._limit = 0
            _warn(f"validation is left out: {type(failure.error).__name__}: {failure.error}")
        finally:
            model.train(was_training)
            seeds.set_random_state(state)
            self.tap.place = place
            self.tap.restart_clock()

    def _measure_movement(self) -> None:
        if self.tap.hides_tensors:
            return
        few = self.tap.step - self._begun_at < 2  # a resumed run's last step may have the rate 0
        if self._recorder is not None and not self._has_moved and not few:
            self._has_moved = True
            self._recorder.evidence(movement.measure(self.tap, self._weights))

    # ---- when something goes wrong

    def _give_up(self, error: Exception) -> None:
        if self.stopped:
            return
        what = str(error).split("\n")[0]
        self.stopped = f"recording stopped at step {self.tap.step + 1}: {type(error).__name__}"
        _warn(f"{self.stopped}: {what}; the run goes on, {self.root} is incomplete")
        self._leave("not recorded", f"{self.stopped}: {hide_message(what[:500])}")
        if self.tap.trainer.args.world_size == 1:
            self.tap.detach()

    def _leave(self, status: str, reason: str) -> None:
        """Say in the folder why it has no outcome, as far as the disk allows."""
        recorder, self._recorder = self._recorder, None
        self._observer = Observer()
        self.tap.on_step = self._observer.on_step
        if recorder is not None:
            with contextlib.suppress(OSError, DiskFull):
                write_json(self.arm.absence, {"status": status, "reason": reason})
            with contextlib.suppress(OSError, DiskFull):
                recorder.close()

    def _failed(self, error: BaseException) -> None:
        """Something was raised inside the loop: an outcome with its place; it goes on raising."""
        if self._has_failed or self.stopped:
            return
        self._has_failed = True
        with self.kept():
            place, step = self.tap.place, self.tap.step
            within = self.tap.failed_step
            rows = self.tap.failed_rows() if within > step else ()
            with contextlib.suppress(RuntimeError):  # a GPU after an assertion answers nothing
                self.tap.flush()
            if world.is_lost_peer(error):
                pass  # what happened is known, and written, in another process
            elif not isinstance(error, Exception):
                self.stopped = f"the run was interrupted in step {within}: {type(error).__name__}"
                self._leave("interrupted", self.stopped)
            elif self._recorder is not None:
                write_json(self.arm.outcome, _outcome(error, place, step, within, rows))
                self._recorder.close()
            elif world.size() > 1:
                world.leave(self.arm.outcome, _outcome(error, place, step, within, rows))
        self.tap.detach()


def _outcome(
    error: Exception, place: str, last_step: int, step: int, rows: tuple[int, ...]
) -> Outcome:
    text = "".join(traceback.format_exception(error))[-8_000:]
    return Outcome(
        status=Outcome.OUT_OF_MEMORY if is_out_of_memory(error) else Outcome.EXCEPTION,
        last_step=last_step,
        where=place,
        step=step,
        row_ids=rows,
        error_type=type(error).__name__,
        message=hide_message(world.in_process() + str(error)[:2_000]),
        traceback_text=hide_message(text),
    )


def _warn(text: str) -> None:
    warnings.warn(f"pilot: {text}", stacklevel=3)
