"""Runs a program inside a Trainer's own loop.

The loop begins with the first step, behind a snapshot of pilot's, or behind the user's checkpoint.
A callback goes on with the arm's program after every step and stops the loop when the program ends.
Only a branch that goes back to an earlier state leaves the loop: its steps call the Trainer's
``training_step`` on rows that are known by then.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from pilot.engines.base import Program, StepRequest
from pilot.engines.guard import is_out_of_memory
from pilot.engines.hf import state as states
from pilot.engines.hf.bare import train_rows
from pilot.engines.hf.driver import Driver, LoopEnd
from pilot.engines.hf.failure import ended_early, failure_of, nothing_to_train
from pilot.engines.hf.held_out import require_not_drawn
from pilot.engines.hf.own_loop import no_loop, only_in
from pilot.engines.hf.ranks import in_order, num_ranks
from pilot.engines.hf.resume_from import UserResume
from pilot.engines.hf.rows import Rows, length_of
from pilot.engines.hf.tap import Tap
from pilot.engines.stream import StreamEnded
from pilot.errors import PilotError, RecipeFailure
from pilot.records import Outcome


class TrainerLoop:
    """The loop of one Trainer; a ``driver.Loop``.

    Args:
        tap: sits on the Trainer.
        batches: the micro-batches of each step, as far as they are known; of several processes,
            this one's. Steps that are drawn are added.
        rows: the rows of the same steps, of all processes.
    """

    def __init__(self, tap: Tap, batches: dict[int, list[Rows]], rows: dict[int, Rows]) -> None:
        self.tap, self._trainer = tap, tap.trainer
        self.batches, self.rows = batches, rows
        self.resume: UserResume | None = None
        self.has_begun = False
        self.own_has_begun: Callable[[], None] = _nothing
        self.loader: Any = None
        self._pending: Mapping[str, Any] | None = None
        self._program: Program | None = None
        self._outcome: Outcome | None = None
        self._raised: BaseException | None = None
        self._seen: RecipeFailure | None = None
        self._kept: dict[torch.nn.Parameter, torch.Tensor] = {}
        self._request = StepRequest(learning_rate=0.0)

    def rows_of(self, step: int) -> tuple[int, ...]:
        """The row ids of ``step``, planned or drawn; empty where they are not known."""
        return self.rows.get(step, ())

    def begin_behind(self, state: Mapping[str, Any]) -> None:
        """Before ``run``: the loop will begin behind a snapshot."""
        self._pending = state
        self.tap.step = int(state["step"])

    def run(self, program: Program) -> Outcome:
        """Train with the Trainer's own loop, as far as ``program`` goes."""
        self._program = program
        if not self.tap.probe.params:
            raise nothing_to_train(self.tap)
        self._trainer.add_callback(Driver(self))
        with tempfile.TemporaryDirectory(prefix="pilot_resume_") as folder:
            resume: dict[str, Any] = {}
            if self._pending is not None:
                path = states.resume_folder(self.tap, self._pending, Path(folder))
                resume["resume_from_checkpoint"] = path
            elif self.resume is not None:
                self.resume.watch_loading()
                resume["resume_from_checkpoint"] = self.resume.folder
            with self.tap.data.resuming(), only_in(self):
                self._in_trainer(lambda: self._trainer.train(**resume))
        if not self.has_begun:
            raise no_loop(self._trainer)
        state = self._trainer.state
        if self._outcome is None and state.global_step < state.max_steps:
            raise ended_early(self.tap)
        while self._outcome is None:  # the full run has ended, a branch has not
            self._bare_step()
            self._advance()
        return self._outcome

    def _in_trainer(self, call: Any) -> None:
        """Run the Trainer; what the user's code raises becomes a failure with place and rows."""
        try:
            call()
        except LoopEnd:
            pass
        except (PilotError, RecipeFailure):
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            if self._raised is None:
                raise failure_of(self.tap, error) from error
        if self._raised is not None:
            raise self._raised

    def loop_begins(self, loader: Any) -> None:
        """Model and optimizer are prepared; nothing has been trained."""
        if self.has_begun:  # auto_find_batch_size: another run than the one that is planned
            again = MemoryError("the Trainer began again with a smaller batch")
            self._raised = self._seen or failure_of(self.tap, again)
            raise LoopEnd
        self.own_has_begun()
        self.tap.on_error = self._note
        pending, self._pending = self._pending, None
        drawn = int(pending["num_drawn"]) if pending else 0
        skip = drawn if drawn < length_of(loader) else 0
        if pending is None and self.resume is not None:
            skip = self.resume.loop_begins(loader)
        self.tap.attach(loader, skip_batches=skip, resumed=pending)
        self.loader, self.has_begun = loader, True
        if pending is not None:
            self.tap.probe.load_state_dict(pending["probe"])
        if self._advance():
            raise LoopEnd

    def _note(self, error: BaseException) -> None:
        if self._seen is None and is_out_of_memory(error):
            self._seen = failure_of(self.tap, error)

    def step_ends(self) -> bool:
        """After a step of the loop; True: the loop has to stop."""
        drawn = list(self.tap.step_batches)
        if drawn != self.batches.get(self.tap.step):  # another order than planned, or one behind it
            self.batches[self.tap.step] = drawn
            self.rows[self.tap.step] = in_order([drawn]) if num_ranks() == 1 else ()
        require_not_drawn(self._trainer, self.rows_of(self.tap.step), self.tap.step)
        for param, grad in self._kept.items():
            param.grad = grad
        done = self._advance()
        while not done and self.tap.step != self._trainer.state.global_step:
            self._bare_step()  # the program went back to an earlier state
            done = self._advance()
        return done

    def gradients_used(self) -> None:
        """The optimizer has stepped; the Trainer is about to drop the gradients."""
        if self._request.keep_grads:
            named = self.tap.probe.params
            self._kept = {p: p.grad for p in named if p.grad is not None}

    def _advance(self) -> bool:
        """Go on with the program to its next step; True: it has ended."""
        assert self._program is not None
        try:
            request = next(self._program)
        except StopIteration as done:
            self._outcome = done.value
            return True
        except BaseException as error:
            self._raised = error
            raise LoopEnd from error
        finally:
            self.tap.restart_clock()
            for param in self._kept:
                param.grad = None
            self._kept = {}
        self._request = request
        self.tap.forced_rate = request.learning_rate if request.forced else None
        return False

    def _bare_step(self) -> None:
        """One step outside of the Trainer's loop, on the rows that are known for it."""
        step = self.tap.step + 1
        batches = self.batches.get(step)
        if not batches:
            ended = f"the training data ended after step {step - 1}, or its rows do not come again"
            raise RecipeFailure(
                "data",
                step=step,
                row_ids=(),
                error=StreamEnded(ended),
                out_of_memory=False,
                traceback_text="",
            )
        self._in_trainer(lambda: train_rows(self.tap, self.loader, batches))


def _nothing() -> None:
    """Nobody waits for the loop."""
