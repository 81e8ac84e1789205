"""The engine that attaches to the user's own Hugging Face ``Trainer``.

``trainer.train()`` is called as the user would call it, with the full run's length: the schedule is
the real one. A callback goes on with the arm's program after every step and stops the loop when the
program ends. Only a branch that goes back to an earlier state leaves the loop: its steps call the
Trainer's ``training_step`` on rows that are known by then.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from pilot.config import Config
from pilot.engines import MAX_WORLD_SIZE
from pilot.engines.base import Capabilities, Observer, Program, StepRequest
from pilot.engines.guard import guard, is_out_of_memory
from pilot.engines.hf import state as states
from pilot.engines.hf.arguments import changes_of
from pilot.engines.hf.bare import train_rows
from pilot.engines.hf.driver import Driver, LoopEnd
from pilot.engines.hf.failure import ended_early, failure_of, nothing_to_train
from pilot.engines.hf.held_out import require_not_drawn
from pilot.engines.hf.ranks import in_order, num_ranks, share_of
from pilot.engines.hf.rates import measure_rates
from pilot.engines.hf.resume_from import UserResume
from pilot.engines.hf.rows import Rows, length_of
from pilot.engines.hf.tap import Tap
from pilot.engines.hf.validation import expected_secs, validate_all
from pilot.engines.state import left_as_it_was
from pilot.engines.stream import StreamEnded
from pilot.errors import PilotError, RecipeFailure
from pilot.own_rates import OwnRates
from pilot.probe import Probe
from pilot.records import Outcome, StepRecord, ValidationRecord
from pilot.restored import Restored


class TransformersEngine:
    """Runs a program inside a Trainer's own loop.

    Args:
        trainer: a Trainer that has not been trained.
        config: the validated configuration of this arm.
        planned: the micro-batches of the first steps, step by step, as far as they are known; of
            several processes, this one's.
        first_step: the step (of the full run's count) that the loop begins with.
        observer: receives the events.
        attempt: the number of this attempt, written into validation records.
        source_of: the source of a row, by its id.
        planned_rows: the rows of the same steps, of all processes; None: this one is alone.
    """

    capabilities = Capabilities(
        can_replay=True,
        can_snapshot=True,
        can_branch=True,
        reports_row_ids=True,
        reports_pre_clip_norm=True,
        max_world_size=MAX_WORLD_SIZE["transformers"],
    )

    def __init__(
        self,
        trainer: Any,
        config: Config,
        *,
        planned: Sequence[list[Rows]],
        first_step: int,
        observer: Observer,
        attempt: int = 1,
        source_of: Callable[[int], str] = lambda row: "train",
        planned_rows: Sequence[Rows] | None = None,
    ) -> None:
        self.trainer, self.config, self.observer, self.attempt = trainer, config, observer, attempt
        self.first_step = first_step
        self.batches = {first_step + i: rows for i, rows in enumerate(planned)}
        rows_of = planned_rows if planned_rows is not None else [in_order([b]) for b in planned]
        self._rows = {first_step + i: rows for i, rows in enumerate(rows_of)}
        self.tap = Tap(trainer, observer.on_step, source_of, keeps_random=True)
        self.built_dtypes = sorted({str(p.dtype)[6:] for p in self.tap.model.parameters()})
        self._pending: Mapping[str, Any] | None = None
        self._resume: UserResume | None = None
        self._runs = False
        self._program: Program | None = None
        self._outcome: Outcome | None = None
        self._raised: BaseException | None = None
        self._seen: RecipeFailure | None = None
        self._kept: dict[torch.nn.Parameter, torch.Tensor] = {}
        self._request = StepRequest(learning_rate=0.0)

    # ---- what there is

    @property
    def device(self) -> torch.device:
        """Where the Trainer trains."""
        found: torch.device = self.trainer.args.device
        return found

    @property
    def step(self) -> int:
        """The last finished step."""
        return self.tap.step

    @property
    def model(self) -> torch.nn.Module:
        """The model, unwrapped."""
        return self.tap.model

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer, unwrapped; it exists once the loop runs."""
        return self.tap.optimizer

    @property
    def probe(self) -> Probe:
        """What measures the steps."""
        return self.tap.probe

    @property
    def restored(self) -> Restored | None:
        """What was restored of the user's checkpoint, once the loop has begun from it."""
        return self._resume.restored if self._resume else None

    def resume_from(self, path: Path, own: Mapping[str, Any]) -> None:
        """Begin from the user's ``checkpoint-N``; its weights are put in place at once.

        ``own`` are the user's values of the training arguments that were set over.

        Raises:
            ConfigError: it is no checkpoint that this Trainer can resume from.
        """
        wanted = changes_of(self.config)
        self._resume = UserResume(self.tap, path, self.first_step - 1, wanted, own)
        self._resume.load_weights()
        self.tap.step = self.first_step - 1

    def rows_of(self, step: int) -> tuple[int, ...]:
        """The row ids of ``step``, planned or drawn; empty where they are not known."""
        return self._rows.get(step, ())

    # ---- the loop

    def run(self, program: Program) -> Outcome:
        """Train with the Trainer's own loop, as far as ``program`` goes."""
        self._program = program
        if not self.probe.params:
            raise nothing_to_train(self.tap)
        self.trainer.add_callback(Driver(self))
        with tempfile.TemporaryDirectory(prefix="pilot_resume_") as folder:
            resume: dict[str, Any] = {}
            if self._pending is not None:
                path = states.resume_folder(self.tap, self._pending, Path(folder))
                resume["resume_from_checkpoint"] = path
            elif self._resume is not None:
                self._resume.watch_loading()
                resume["resume_from_checkpoint"] = self._resume.folder
            with self.tap.data.resuming():
                self._in_trainer(lambda: self.trainer.train(**resume))
        state = self.trainer.state
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
        if self._runs:  # auto_find_batch_size: another run than the one that is planned
            again = MemoryError("the Trainer began again with a smaller batch")
            self._raised = self._seen or failure_of(self.tap, again)
            raise LoopEnd
        self.tap.on_error = self._note
        pending, self._pending = self._pending, None
        drawn = int(pending["num_drawn"]) if pending else 0
        skip = drawn if drawn < length_of(loader) else 0
        if pending is None and self._resume is not None:
            skip = self._resume.loop_begins(loader)
        self.tap.attach(loader, skip_batches=skip, resumed=pending)
        self._loader, self._runs = loader, True
        if pending is not None:
            self.probe.load_state_dict(pending["probe"])
        if self._advance():
            raise LoopEnd

    def _note(self, error: BaseException) -> None:
        if self._seen is None and is_out_of_memory(error):
            self._seen = failure_of(self.tap, error)

    def step_ends(self) -> bool:
        """After a step of the loop; True: the loop has to stop."""
        drawn = list(self.tap.step_batches)
        if drawn != self.batches.get(self.step):  # another order than planned, or one behind it
            self.batches[self.step] = drawn
            self._rows[self.step] = in_order([drawn]) if num_ranks() == 1 else ()
        require_not_drawn(self.trainer, self.rows_of(self.step), self.step)
        for param, grad in self._kept.items():
            param.grad = grad
        done = self._advance()
        while not done and self.step != self.trainer.state.global_step:
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
        step = self.step + 1
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
        self._in_trainer(lambda: train_rows(self.tap, self._loader, batches))

    def flush(self) -> None:
        """Hand out the record of the last step, if it has not been yet."""
        self.tap.flush()

    # ---- requests

    def try_rows(self, row_ids: Sequence[int]) -> float:
        """Forward and backward on one micro-batch, no step; the run is left as it was."""
        rollout = states.rollout(self.trainer)
        with (
            left_as_it_was(self.model),
            guard("longest sample", step=self.step + 1, row_ids=row_ids),
        ):
            rows = [tuple(int(row) for row in row_ids)]
            loss = train_rows(self.tap, self._loader, rows, is_try=True)
        states.set_rollout(self.trainer, rollout)
        return loss

    def request_validation(self, at: str) -> list[ValidationRecord]:
        """Evaluate all validation sets now, without moving the run's random state."""
        self.flush()
        return validate_all(
            self.trainer,
            self.observer,
            at=at,
            step=self.step,
            limit=self.config.pilot.validation_rows,
            data_seed=self.config.pilot.data_seed,
            attempt=self.attempt,
        )

    def validation_secs(self) -> float:
        """Expected seconds of one validation of all sets, from a few of its rows."""
        return expected_secs(self.trainer, self.config.pilot.validation_rows)

    def own_rates(self) -> OwnRates | None:
        """The rates that the Trainer's scheduler plans from here to the full run's end."""
        done, last = self.step, int(self.trainer.state.max_steps)
        return measure_rates(self.trainer, self.optimizer, done, max(last, done))

    def change_groups(
        self, rate_scales: Sequence[float], weight_decays: Sequence[float] | None = None
    ) -> None:
        """Multiply the rate of each parameter group at every step; set their weight decays."""
        self.tap.rates.scales = tuple(rate_scales)
        for group, decay in zip(self.optimizer.param_groups, weight_decays or (), strict=False):
            group["weight_decay"] = decay

    def snapshot(self) -> dict[str, Any]:
        """The exact state: weights, optimizer, schedule, random states, place in the data."""
        self.flush()
        return states.take(self.tap)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot; before ``run``, the loop will begin behind it."""
        state = states.of_this_process(state)
        if self._runs:
            states.put(self.tap, state)
            return
        self._pending = state
        self.tap.step = int(state["step"])

    def replay_step(self, state: Mapping[str, Any], row_ids: Sequence[int]) -> StepRecord:
        """Restore ``state``, train one step on ``row_ids`` and say what was measured."""
        self.restore(state)
        rows = tuple(int(row) for row in row_ids)
        size = self.trainer.args.per_device_train_batch_size
        known = [step for step, planned in self._rows.items() if planned == rows]
        batches = self.batches[known[0]] if known else share_of(rows, size)
        rate = float(self.optimizer.param_groups[0].get("initial_lr", 0.0))
        rate *= (self.tap.rates.scales or (1.0,))[0]
        self.tap.forced_rate = rate  # a warm-up's first step would not move
        with guard("replay", step=self.step + 1, row_ids=rows):
            train_rows(self.tap, self._loader, batches)
        self.tap.forced_rate = None
        record = self.probe.collect()
        assert record is not None
        return record
