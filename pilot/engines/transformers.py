"""The engine that attaches to the user's own Hugging Face ``Trainer``.

``trainer.train()`` is called as the user would call it, with the full run's length: the schedule is
the real one. What happens inside of that call is in ``hf/loop.py``; here is what may be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from pilot.config import Config
from pilot.engines import MAX_WORLD_SIZE
from pilot.engines.base import Capabilities, Observer, Program
from pilot.engines.guard import guard
from pilot.engines.hf import state as states
from pilot.engines.hf.arguments import changes_of
from pilot.engines.hf.bare import train_rows
from pilot.engines.hf.loop import TrainerLoop
from pilot.engines.hf.ranks import in_order, share_of
from pilot.engines.hf.rates import measure_rates
from pilot.engines.hf.resume_from import UserResume
from pilot.engines.hf.rows import Rows
from pilot.engines.hf.tap import Tap
from pilot.engines.hf.validation import expected_secs, validate_all
from pilot.engines.state import left_as_it_was
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
        self.tap = Tap(trainer, observer.on_step, source_of, keeps_random=True)
        rows_of = planned_rows if planned_rows is not None else [in_order([b]) for b in planned]
        self.loop = TrainerLoop(
            self.tap,
            batches={first_step + i: rows for i, rows in enumerate(planned)},
            rows={first_step + i: rows for i, rows in enumerate(rows_of)},
        )
        self.built_dtypes = sorted({str(p.dtype)[6:] for p in self.tap.model.parameters()})

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
        return self.loop.resume.restored if self.loop.resume else None

    def resume_from(self, path: Path, own: Mapping[str, Any]) -> None:
        """Begin from the user's ``checkpoint-N``; its weights are put in place at once.

        ``own`` are the user's values of the training arguments that were set over.

        Raises:
            ConfigError: it is no checkpoint that this Trainer can resume from.
        """
        wanted = changes_of(self.config)
        self.loop.resume = UserResume(self.tap, path, self.first_step - 1, wanted, own)
        self.loop.resume.load_weights()
        self.tap.step = self.first_step - 1

    def rows_of(self, step: int) -> tuple[int, ...]:
        """The row ids of ``step``, planned or drawn; empty where they are not known."""
        return self.loop.rows_of(step)

    # ---- requests

    def run(self, program: Program) -> Outcome:
        """Train with the Trainer's own loop, as far as ``program`` goes."""
        return self.loop.run(program)

    def flush(self) -> None:
        """Hand out the record of the last step, if it has not been yet."""
        self.tap.flush()

    def try_rows(self, row_ids: Sequence[int]) -> float:
        """Forward and backward on one micro-batch, no step; the run is left as it was."""
        rollout = states.rollout(self.trainer)
        with (
            left_as_it_was(self.model),
            guard("longest sample", step=self.step + 1, row_ids=row_ids),
        ):
            rows = [tuple(int(row) for row in row_ids)]
            loss = train_rows(self.tap, self.loop.loader, rows, is_try=True)
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
        if self.loop.has_begun:
            states.put(self.tap, state)
        else:
            self.loop.begin_behind(state)

    def replay_step(self, state: Mapping[str, Any], row_ids: Sequence[int]) -> StepRecord:
        """Restore ``state``, train one step on ``row_ids`` and say what was measured."""
        self.restore(state)
        rows = tuple(int(row) for row in row_ids)
        size = self.trainer.args.per_device_train_batch_size
        known = [step for step, planned in self.loop.rows.items() if planned == rows]
        batches = self.loop.batches[known[0]] if known else share_of(rows, size)
        rate = float(self.optimizer.param_groups[0].get("initial_lr", 0.0))
        rate *= (self.tap.rates.scales or (1.0,))[0]
        self.tap.forced_rate = rate  # a warm-up's first step would not move
        with guard("replay", step=self.step + 1, row_ids=rows):
            train_rows(self.tap, self.loop.loader, batches)
        self.tap.forced_rate = None
        record = self.probe.collect()
        assert record is not None
        return record
