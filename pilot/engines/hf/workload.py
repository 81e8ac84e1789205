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

from pilot.config import Config
from pilot.data.held_out import SHARE, Choice, choose, of_a_stream, of_several_processes
from pilot.engines import seeds
from pilot.engines.base import Observer
from pilot.engines.held_out import keep_choice, kept_choice
from pilot.engines.hf import held_out
from pilot.engines.hf.arguments import changes_of
from pilot.engines.hf.argv import argv_of
from pilot.engines.hf.audit import audit_set
from pilot.engines.hf.build import build_trainer
from pilot.engines.hf.contract import require_contract
from pilot.engines.hf.digests import changed_sets, digests
from pilot.engines.hf.facts import UNMEASURED, row_facts
from pilot.engines.hf.failed_rows import wants_several
from pilot.engines.hf.order import (
    drawn_by_pilot,
    max_steps,
    num_train_rows,
    of_all_processes,
    order_is_fixed,
    own_order,
    planned_steps,
)
from pilot.engines.hf.ranks import num_ranks
from pilot.engines.hf.run_facts import run_facts
from pilot.engines.hf.sources import source_column, source_in
from pilot.engines.hf.validation import num_rows, validation_sets
from pilot.engines.transformers import TransformersEngine
from pilot.errors import Mistake
from pilot.folder import PilotFolder, read_json
from pilot.recipe import RowFacts
from pilot.user_checkpoint import resume_path
from pilot.view import RowTable

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

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
    argv, seed = argv_of(config.recipe), config.pilot.seed
    built = build_trainer(target, start, Path(scratch.name), changes, seed=seed, argv=argv)
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
        self._failed_rows: dict[int, str] = {}
        if kept := kept_choice(folder):
            self._use(kept.mode, kept.row_ids)

    @property
    def num_rows(self) -> int | None:
        """Training rows, as the loader sees them; None: a stream, whose rows have no ids."""
        return num_train_rows(self.loader)

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
            ConfigError, UsageError: it does not, or cannot be piloted.
        """
        require_contract(self.trainer, self.loader, self.config, self.own)

    def model_mistakes(self, model: torch.nn.Module) -> list[Mistake]:
        """None beyond ``require_contract``."""
        return []

    @property
    def max_steps(self) -> int:
        """Optimizer steps of the Trainer's full run."""
        return max_steps(self.trainer, self.loader)

    def facts(self) -> list[RowFacts]:
        """Source and length of every training row, as the collator makes it; of a stream none.

        Raises:
            UsageError: the collator takes no row by itself, as a validation needs it.
        """
        if self.num_rows is None:
            return []
        failed = self._failed_rows
        found = row_facts(self.trainer, self.loader, failed=failed)
        if found and not failed and all(fact.num_tokens == UNMEASURED for fact in found):
            raise wants_several(self.target)
        self._sources = [fact.source for fact in found]
        return found

    def audit(self, vocab_size: int | None, max_positions: int | None) -> list[dict[str, Any]]:
        """What the label audit found in each set; held-out rows are the training set's."""
        train = self.dataset if self.num_rows is not None else self._head()
        sets = {"train": train, **validation_sets(self.trainer)}
        return [
            audit_set(
                name,
                rows,
                vocab_size=vocab_size,
                max_positions=max_positions,
                known=self._failed_rows if rows is train else None,
            )
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
            drawn_by_pilot(self.trainer, self.loader, self.config, count),
            wanted=pilot.validation_rows,
            data_seed=pilot.data_seed,
            share_refused=held_out.why_not(self.loader, count),
        )

    def _use(self, mode: str, row_ids: Sequence[int]) -> None:
        held_out.use(self.trainer, self.loader, mode, row_ids, self.max_steps)

    def order_is_fixed(self) -> bool:
        """Whether the loader draws the same rows whatever the random state is when it begins."""
        return order_is_fixed(self.loader)

    def own_order(self, num_rows: int) -> npt.NDArray[np.int64] | None:
        """The first ``num_rows`` ids that the Trainer's loader draws; None: rows have no ids."""
        return own_order(self.trainer, self.loader, num_rows)

    def _head(self) -> list[Any]:
        """The first rows of a stream; fewer where it raises: the run will meet it."""
        state, rows = seeds.random_state(), []
        with contextlib.suppress(Exception, SystemExit):
            for row in itertools.islice(iter(self.dataset), _AUDITED_ROWS):
                rows.append(row)
        seeds.set_random_state(state)
        return rows

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
        num_steps = first_step - 1 + len(order) // self.config.rows_per_step
        planned = planned_steps(self.trainer, self.loader, num_steps)
        engine = TransformersEngine(
            self.trainer,
            self.config,
            planned=planned[first_step - 1 :],
            planned_rows=of_all_processes(planned)[first_step - 1 :],
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
