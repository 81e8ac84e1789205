"""A user's Trainer as a workload: its rows, its evaluation sets, the engine that attaches to it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pilot.arms.price import rows_needed
from pilot.arms.specs import arm_specs
from pilot.config import Config
from pilot.data.held_out import SHARE, Choice, choose, of_a_stream, of_several_processes
from pilot.engines import seeds
from pilot.engines.base import Observer
from pilot.engines.held_out import keep_choice, kept_choice
from pilot.engines.hf import held_out, sharded
from pilot.engines.hf.arguments import changes_of, disagreements
from pilot.engines.hf.audit import audit_set
from pilot.engines.hf.build import build_trainer
from pilot.engines.hf.digests import changed_sets, digests
from pilot.engines.hf.facts import row_facts
from pilot.engines.hf.ranks import in_order, num_ranks
from pilot.engines.hf.rates import planned_rates
from pilot.engines.hf.rows import (
    Rows,
    dispatches,
    inner_batch_sampler,
    planned_batches,
    set_epoch,
    untouched,
)
from pilot.engines.hf.run_facts import run_facts
from pilot.engines.hf.sources import source_column, source_in
from pilot.engines.hf.validation import num_rows, validation_sets
from pilot.engines.team import team
from pilot.engines.transformers import TransformersEngine
from pilot.errors import ConfigError, Mistake, UsageError
from pilot.folder import PilotFolder, read_json
from pilot.plan import last_drawn_step
from pilot.recipe import RowFacts
from pilot.schedule import TRAINER, RateTable
from pilot.user_checkpoint import resume_path
from pilot.view import RowTable

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

_COMPARED_BATCHES = 8
_SAME_FOR_ALL_BATCHES = ("RandomSampler", "SeedableRandomSampler", "SequentialSampler")
_AUDITED_ROWS = 256  # of a stream


def open_trainer(config: Config, start: Path, folder: PilotFolder | None = None) -> TrainerWorkload:
    """Build the Trainer that ``recipe.trainer`` names; relative paths begin at ``start``.

    ``folder``: the pilot's, where its survey left what holds for every arm.

    Raises:
        ConfigError, MissingExtra: it cannot be built, or is none.
    """
    scratch = tempfile.TemporaryDirectory(prefix="pilot_trainer_")
    target = str(config.recipe["trainer"])
    changes = changes_of(config)
    built = build_trainer(target, start, Path(scratch.name), changes, seed=config.pilot.seed)
    told = {name: value for name, value in changes.items() if name in built.own}
    print(f"training arguments set over the script's: {told}", flush=True)
    return TrainerWorkload(built.trainer, config, built.own, scratch, folder)


class TrainerWorkload:
    """A Trainer that has not been trained.

    Args:
        trainer: the Trainer.
        config: the validated configuration of this arm.
        own: the user's values of training arguments that were set over.
        scratch: kept as long as the workload: the Trainer's output folder.
        folder: the pilot's, once it is surveyed.
        loader: its training loader, where it has made one already.
    """

    def __init__(
        self,
        trainer: Any,
        config: Config,
        own: Mapping[str, Any],
        scratch: object = None,
        folder: PilotFolder | None = None,
        loader: Any = None,
    ) -> None:
        self.trainer, self.config, self.own, self._scratch = trainer, config, own, scratch
        self.target = str(config.recipe["trainer"])
        state = seeds.random_state()
        self.loader = trainer.get_train_dataloader() if loader is None else loader
        self.dataset = self.loader.dataset
        seeds.set_random_state(state)
        self._folder = folder
        self._sources: list[str] | None = None
        if kept := kept_choice(folder):
            self._use(kept.mode, kept.row_ids)

    @property
    def num_rows(self) -> int | None:
        """Training rows, as the loader sees them; None: a stream, whose rows have no ids."""
        return None if inner_batch_sampler(self.loader) is None else num_rows(self.dataset)

    @property
    def goes_back(self) -> bool:
        """Whether rows can be had again: not those of a stream."""
        return self.num_rows is not None

    @property
    def validation_rows(self) -> Mapping[str, int]:
        """Rows of each evaluation set."""
        return {name: num_rows(rows) for name, rows in validation_sets(self.trainer).items()}

    def require_contract(self) -> None:
        """The Trainer has rows, and trains as the configuration says.

        Raises:
            ConfigError: with everything in which Trainer and configuration differ.
        """
        sharded.refuse(sharded.of_trainer(self.trainer))
        self._require_processes()
        if self.num_rows == 0:
            raise UsageError(
                f"{self.target}: its training set has no rows\n"
                "    remedy: check where it reads its data"
            )
        rows = self.num_rows or 0
        lines = disagreements(self.trainer, self.own, self.config, rows, self.max_steps)
        rule = "the configuration must describe the Trainer's run"
        mistakes = [
            Mistake(key="recipe.trainer", value=line, rule=rule, remedy="make the two agree")
            for line in lines
        ]
        if self.num_rows is None and self.config.full_run.schedule_steps is None:
            mistakes = [
                Mistake(
                    key="full_run.epochs",
                    value=f"{self.config.full_run.epochs:g}",
                    rule="the training set is a stream: passes over it are no number of steps",
                    remedy=f"set full_run.schedule_steps={self.max_steps}, and epochs to null",
                )
            ]
        if mistakes:
            raise ConfigError(mistakes)

    def model_mistakes(self, model: torch.nn.Module) -> list[Mistake]:
        """None beyond ``require_contract``."""
        return []

    def _require_processes(self) -> None:
        """The Trainer's processes are those that pilot started, and each draws its own rows."""
        num, found = self.config.launcher.num_processes, max(1, int(self.trainer.args.world_size))
        if found != num:
            raise UsageError(
                f"launcher.num_processes is {num}, the Trainer's processes are {found}\n"
                "    rule:   the processes that pilot starts train together\n"
                "    remedy: on a CPU set use_cpu=True in the Trainer's arguments, or export "
                "ACCELERATE_USE_CPU=true"
            )
        splits = bool(getattr(self.trainer.args.accelerator_config, "split_batches", False))
        if num > 1 and (splits or dispatches(self.loader)):
            name = "split_batches" if splits else "dispatch_batches"
            smaller = " and divide per_device_train_batch_size by the processes" if splits else ""
            raise UsageError(
                f"{self.target}: accelerator_config has {name}=True\n"
                "    rule:   with several processes each must draw its own rows, or nobody knows "
                "which of them it trains on\n"
                f"    remedy: set {name}=False{smaller}: the rows are the same"
            )

    @property
    def max_steps(self) -> int:
        """Optimizer steps of the Trainer's full run."""
        values = self.trainer.set_initial_training_values(self.trainer.args, self.loader)
        return int(values[-1])

    def facts(self) -> list[RowFacts]:
        """Source and length of every training row, as the collator makes it; of a stream none."""
        if self.num_rows is None:
            return []
        found = row_facts(self.trainer, self.loader, target=self.target)
        self._sources = [fact.source for fact in found]
        return found

    def audit(self, vocab_size: int | None, max_positions: int | None) -> list[dict[str, Any]]:
        """What the label audit found in each set; held-out rows are the training set's."""
        train = self.dataset if self.num_rows is not None else self._head()
        sets = {"train": train, **validation_sets(self.trainer)}
        return [
            audit_set(name, rows, vocab_size=vocab_size, max_positions=max_positions)
            for name, rows in sets.items()
            if num_rows(rows) and not isinstance(rows, held_out.HeldOutRows)
        ]

    def digests(self) -> list[dict[str, Any]]:
        """What binds a verdict, and every arm, to the data of this Trainer."""
        return digests(self.trainer)

    def changed_data(self, surveyed: Sequence[Mapping[str, Any]]) -> list[str]:
        """In what the data are not the surveyed ones, one line for each set."""
        return changed_sets(self.trainer, surveyed)

    # ---- a validation set where the Trainer has none

    def hold_out(self, folder: PilotFolder, rows: RowTable) -> dict[str, Any] | None:
        """Hold rows out where there is no validation set; None: there is one."""
        folder.held_out.unlink(missing_ok=True)
        if validation_sets(self.trainer):
            return None
        choice = self._choice()
        if not choice.refused:
            self._use(choice.mode, choice.row_ids)
        return keep_choice(
            folder,
            choice,
            refused=f"the Trainer has no validation set, and {choice.refused}; "
            "give it an eval_dataset",
            has_been_trained_on=bool(self.config.full_run.start_step) and choice.mode == SHARE,
        )

    def _choice(self) -> Choice:
        pilot, count = self.config.pilot, self.num_rows
        if count is None:
            return of_a_stream()
        if num_ranks() > 1:
            return of_several_processes()
        return choose(
            count,
            self._drawn_rows(count),
            wanted=pilot.validation_rows,
            data_seed=pilot.data_seed,
            share_refused=held_out.why_not(self.loader, count),
        )

    def _use(self, mode: str, row_ids: Sequence[int]) -> None:
        held_out.use(self.trainer, self.loader, mode, row_ids, self.max_steps)

    def _drawn_rows(self, count: int) -> npt.NDArray[np.int64] | None:
        """Every row that the pilot or one of its arms may draw; None where that is not known."""
        kind = type(getattr(inner_batch_sampler(self.loader), "sampler", None)).__name__
        widths = any(spec.variable.startswith("batch.") for spec in arm_specs(self.config))
        if widths and kind not in _SAME_FOR_ALL_BATCHES:
            return None
        if not self.order_is_fixed():
            return None
        rates = planned_rates(self.trainer, self.max_steps)
        table = RateTable(rates=tuple(rates), base_rate=self.config.optim.learning_rate)
        if self.config.full_run.schedule == TRAINER and not table.peak > 0.0:
            return None
        last = last_drawn_step(self.config, count, table)
        return self.own_order(rows_needed(self.config, last))

    def order_is_fixed(self) -> bool:
        """Whether the loader draws the same rows whatever the random state is when it begins."""
        if self.num_rows is None:
            return True  # the order of a stream is its own
        sampler, drawn = inner_batch_sampler(self.loader), []
        for seed in (1, 2) if sampler is not None else ():
            with untouched(self.loader):
                seeds.seed_everything(seed)
                set_epoch(self.loader, sampler, 0)
                drawn.append(
                    [list(batch) for batch in itertools.islice(sampler, _COMPARED_BATCHES)]
                )
        return not drawn or drawn[0] == drawn[1]

    def _head(self) -> list[Any]:
        """The first rows of a stream; fewer where it raises: the run will meet it."""
        state, rows = seeds.random_state(), []
        with contextlib.suppress(Exception, SystemExit):
            for row in itertools.islice(iter(self.dataset), _AUDITED_ROWS):
                rows.append(row)
        seeds.set_random_state(state)
        return rows

    def own_order(self, num_rows: int) -> npt.NDArray[np.int64] | None:
        """The first ``num_rows`` ids that the Trainer's loader draws; None: rows have no ids."""
        if self.num_rows is None:
            return None
        args = self.trainer.args
        width = args.train_batch_size * args.gradient_accumulation_steps * max(1, args.world_size)
        steps = self._planned(-(-num_rows // width) + len(self.loader))
        flat = [row for step in self._of_all(steps) for row in step]
        return np.array(flat[:num_rows], dtype=np.int64)

    def run_facts(self) -> Mapping[str, Any]:
        """What the Trainer says about its full run."""
        return run_facts(self.trainer, self.max_steps)

    def make_engine(
        self,
        *,
        order: npt.NDArray[np.int64],
        first_step: int,
        observer: Observer,
        attempt: int = 1,
    ) -> TransformersEngine:
        """The engine that attaches to the Trainer; the order is the Trainer's own."""
        planned = self._planned(first_step - 1 + len(order) // self.config.rows_per_step)
        engine = TransformersEngine(
            self.trainer,
            self.config,
            planned=planned[first_step - 1 :],
            planned_rows=self._of_all(planned)[first_step - 1 :],
            first_step=first_step,
            observer=observer,
            attempt=attempt,
            source_of=self._source_of(),
        )
        if not self.goes_back:
            engine.capabilities = dataclasses.replace(
                engine.capabilities, can_replay=False, can_branch=False, reports_row_ids=False
            )
        if (path := resume_path(self.config.recipe)) is not None:
            engine.resume_from(path, self.own)
        return engine

    def _planned(self, num_steps: int) -> Sequence[list[Rows]]:
        with untouched(self.loader):
            return planned_batches(self.trainer, self.loader, num_steps)

    def _of_all(self, steps: Sequence[list[Rows]]) -> list[Rows]:
        """The rows of each step, of all processes; each draws its own."""
        together = team()
        steps_of = [steps] if together is None else together.gather(list(steps))
        return [in_order(batches_of) for batches_of in zip(*steps_of, strict=False)]

    def _source_of(self) -> Callable[[int], str]:
        """The source of a row by its id: from the survey's table, or from the data."""
        if self._sources is None and self._folder is not None and self._folder.rows.is_file():
            with np.load(self._folder.rows, allow_pickle=False) as table:
                codes = table["source"]
            names = list(read_json(self._folder.survey)["source_names"])
            return lambda row: str(names[codes[row]])

        column = self._sources or source_column(self.trainer, self.dataset)
        if column is not None:
            return column.__getitem__
        return lambda row: source_in(self.dataset[row])
