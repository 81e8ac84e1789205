"""A user's Trainer as a workload: its rows, its evaluation sets, the engine that attaches to it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pilot.config import Config
from pilot.data.audit import audit_rows
from pilot.engines import seeds
from pilot.engines.base import Observer
from pilot.engines.hf import sharded
from pilot.engines.hf.arguments import changes_of, disagreements
from pilot.engines.hf.build import build_trainer
from pilot.engines.hf.ranks import in_order
from pilot.engines.hf.rows import (
    IGNORED,
    Rows,
    count_tokens,
    dispatches,
    inner_batch_sampler,
    planned_batches,
)
from pilot.engines.hf.validation import num_rows, validation_sets
from pilot.engines.team import team
from pilot.engines.transformers import TransformersEngine
from pilot.errors import ConfigError, Mistake, UsageError
from pilot.recipe import RowFacts

if TYPE_CHECKING:
    import numpy.typing as npt

_COMPARED_ROWS = 16


def open_trainer(config: Config, start: Path) -> TrainerWorkload:
    """Build the Trainer that ``recipe.trainer`` names; relative paths begin at ``start``.

    Raises:
        ConfigError, MissingExtra: it cannot be built, or is none.
    """
    scratch = tempfile.TemporaryDirectory(prefix="pilot_trainer_")
    target = str(config.recipe["trainer"])
    built = build_trainer(target, start, Path(scratch.name), changes_of(config))
    return TrainerWorkload(built.trainer, config, built.own, scratch)


class TrainerWorkload:
    """A Trainer that has not been trained.

    Args:
        trainer: the Trainer.
        config: the validated configuration of this arm.
        own: the user's values of training arguments that were set over.
        scratch: kept as long as the workload: the Trainer's output folder.
    """

    def __init__(
        self, trainer: Any, config: Config, own: Mapping[str, Any], scratch: object = None
    ) -> None:
        self.trainer, self.config, self.own, self._scratch = trainer, config, own, scratch
        self.target = str(config.recipe["trainer"])
        state = seeds.random_state()
        self.loader = trainer.get_train_dataloader()
        self.dataset = self.loader.dataset
        seeds.set_random_state(state)

    @property
    def num_rows(self) -> int:
        """Training rows, as the loader sees them."""
        return num_rows(self.dataset)

    @property
    def validation_rows(self) -> Mapping[str, int]:
        """Rows of each evaluation set."""
        return {name: num_rows(rows) for name, rows in validation_sets(self.trainer).items()}

    def require_contract(self) -> None:
        """The Trainer draws rows by their id, and trains as the configuration says.

        Raises:
            ConfigError: with everything in which Trainer and configuration differ.
        """
        sharded.refuse(sharded.of_trainer(self.trainer))
        self._require_processes()
        if inner_batch_sampler(self.loader) is None or not self.num_rows:
            raise UsageError(
                f"{self.target}: its training set has no rows that can be counted\n"
                "    remedy: give a dataset with a length, or attach pilot.PilotCallback"
            )
        lines = disagreements(self.trainer, self.own, self.config, self.num_rows, self.max_steps)
        rule = "the configuration must describe the Trainer's run"
        mistakes = [
            Mistake(key="recipe.trainer", value=line, rule=rule, remedy="make the two agree")
            for line in lines
        ]
        if mistakes:
            raise ConfigError(mistakes)

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
        """Source and length of every training row, as the collator makes it."""
        counted = [self._collated(row) for row in range(min(_COMPARED_ROWS, self.num_rows))]
        plain = [_plain_facts(self.dataset[row]) for row in range(len(counted))]
        if plain != counted:
            return [self._collated(row) for row in range(self.num_rows)]
        rows = (_plain_facts(self.dataset[row]) for row in range(self.num_rows))
        return [found for found in rows if found is not None]

    def audit(self, vocab_size: int | None, max_positions: int | None) -> list[dict[str, Any]]:
        """What the label audit found in each set."""
        sets = {"train": self.dataset, **validation_sets(self.trainer)}
        return [
            audit_rows(name, rows, vocab_size=vocab_size, max_positions=max_positions)
            for name, rows in sets.items()
            if num_rows(rows)
        ]

    def own_order(self, num_rows: int) -> npt.NDArray[np.int64] | None:
        """The first ``num_rows`` ids that the Trainer's loader draws."""
        args = self.trainer.args
        width = args.train_batch_size * args.gradient_accumulation_steps * max(1, args.world_size)
        steps = self._planned(-(-num_rows // width) + len(self.loader))
        flat = [row for step in self._of_all(steps) for row in step]
        return np.array(flat[:num_rows], dtype=np.int64)

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
        return TransformersEngine(
            self.trainer,
            self.config,
            planned=planned[first_step - 1 :],
            planned_rows=self._of_all(planned)[first_step - 1 :],
            first_step=first_step,
            observer=observer,
            attempt=attempt,
        )

    def _planned(self, num_steps: int) -> Sequence[list[Rows]]:
        state = seeds.random_state()
        steps = planned_batches(self.trainer, self.loader, num_steps)
        seeds.set_random_state(state)
        return steps

    def _of_all(self, steps: Sequence[list[Rows]]) -> list[Rows]:
        """The rows of each step, of all processes; each draws its own."""
        together = team()
        steps_of = [steps] if together is None else together.gather(list(steps))
        return [in_order(batches_of) for batches_of in zip(*steps_of, strict=False)]

    def _collated(self, row: int) -> RowFacts:
        state = seeds.random_state()
        example = self.dataset[row]
        try:
            counts = count_tokens(self.trainer, [self.loader.collate_fn([example])]).tolist()
        except Exception as error:
            raise UsageError(
                f"{self.target}: the collator fails on row {row}: {type(error).__name__}: {error}\n"
                "    remedy: every row of the training set must be collatable by itself"
            ) from error
        finally:
            seeds.set_random_state(state)
        supervised, tokens, _ = (int(count) for count in counts)
        return RowFacts(
            source=_source(example), num_tokens=tokens, num_supervised_tokens=supervised
        )


def _plain_facts(example: Any) -> RowFacts | None:
    """The facts of a tokenized row of a causal language model, without its collator."""
    if not (isinstance(example, Mapping) and {"input_ids", "labels"} <= set(example)):
        return None
    supervised = sum(int(label) != IGNORED for label in list(example["labels"])[1:])
    return RowFacts(
        source=_source(example),
        num_tokens=len(example["input_ids"]),
        num_supervised_tokens=supervised,
    )


def _source(example: Any) -> str:
    return str(example.get("source", "train")) if isinstance(example, Mapping) else "train"
