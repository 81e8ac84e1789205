"""A recipe of the native engine as a workload: its rows, its sets, the engine over it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilot.config import Config
from pilot.data.audit import audit_rows
from pilot.data.held_out import Choice, choose, of_a_stream
from pilot.engines.base import Observer
from pilot.engines.complete import CompleteRecipe, complete
from pilot.engines.contract import batch_mistakes, structure_mistakes
from pilot.engines.held_out import WithHeldOut, drawn_by_pilot, keep_choice, kept_choice
from pilot.engines.native import NativeEngine
from pilot.engines.own_optimizer import rate_mistakes
from pilot.engines.resume_from import begin
from pilot.errors import ConfigError, Mistake, UsageError
from pilot.folder import PilotFolder
from pilot.recipe import RowFacts
from pilot.schedule import Schedule, full_schedule
from pilot.view import RowTable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch


class NativeWorkload:
    """The rows of a built recipe; pilot draws their order.

    Args:
        recipe: what the recipe's ``build`` returned.
        config: the validated configuration.
        module_path: the recipe's file.
        folder: the pilot's, once it is surveyed.
    """

    def __init__(
        self, recipe: Any, config: Config, module_path: Path, folder: PilotFolder | None = None
    ) -> None:
        kept = kept_choice(folder)
        self._built = WithHeldOut(recipe, kept.row_ids) if kept else recipe
        self.config, self._name, self._module_path = config, module_path.name, module_path

    @functools.cached_property
    def recipe(self) -> CompleteRecipe:
        """The recipe with what it leaves out."""
        return complete(self._built, self.config)

    @property
    def num_rows(self) -> int | None:
        """Training rows; None: a stream."""
        return self.recipe.num_rows

    @property
    def goes_back(self) -> bool:
        """Always: of a stream the newest rows are kept."""
        return True

    @property
    def validation_rows(self) -> Mapping[str, int]:
        """Rows of each validation set."""
        return {name: len(rows) for name, rows in self.recipe.validation.items()}

    def require_contract(self) -> None:
        """What ``build`` returned must have the parts that are used, and they must fit.

        Raises:
            ConfigError: with everything that is missing or of the wrong kind.
        """
        mistakes = structure_mistakes(self._built, self.config)
        if not mistakes:
            mistakes = batch_mistakes(self.recipe)
        if mistakes:
            raise ConfigError(mistakes)

    def model_mistakes(self, model: torch.nn.Module) -> list[Mistake]:
        """Rates of the recipe's own optimizer or scheduler that do not do as they should."""
        return rate_mistakes(self._built, self.config, model, self._schedule.schedule_steps)

    @property
    def _schedule(self) -> Schedule:
        return full_schedule(self.config, self.num_rows or 0)

    def facts(self) -> list[RowFacts]:
        """Source and length of every training row; empty for a stream.

        Raises:
            UsageError: the recipe's ``facts`` fails on a row.
        """
        facts = []
        for row, example in enumerate(self.recipe.train if self.num_rows is not None else ()):
            try:
                fact = self.recipe.facts(example)
                RowFacts(
                    source=str(fact.source),
                    num_tokens=int(fact.num_tokens),
                    num_supervised_tokens=int(fact.num_supervised_tokens),
                )
            except Exception as error:
                raise UsageError(
                    f"the recipe {self._name} fails in facts() on row {row}: "
                    f"{type(error).__name__}: {error}\n"
                    "    remedy: facts(example) returns RowFacts(source, num_tokens, "
                    "num_supervised_tokens)"
                ) from error
            facts.append(fact)
        return facts

    def audit(self, vocab_size: int | None, max_positions: int | None) -> list[dict[str, Any]]:
        """What the label audit found in each set; of a stream in its first rows."""
        sets = {"train": self.recipe.head(), **self.recipe.validation}
        return [
            audit_rows(name, examples, vocab_size=vocab_size, max_positions=max_positions)
            for name, examples in sets.items()
        ]

    def digests(self) -> list[dict[str, Any]]:
        """None: the recipe's files are bound by themselves."""
        return []

    def changed_data(self, surveyed: Sequence[Mapping[str, Any]]) -> list[str]:
        """None that is known here: a changed file shows in the fingerprint."""
        return []

    def hold_out(self, folder: PilotFolder, rows: RowTable) -> dict[str, Any] | None:
        """Take rows that no step draws as the validation set; None: the recipe has one."""
        folder.held_out.unlink(missing_ok=True)
        if self.recipe.validation:
            return None
        choice = self._choice(rows)
        if not choice.refused:
            self._built = WithHeldOut(self._built, choice.row_ids)
            del self.recipe  # it is completed again
        why = f"the recipe has no validation set, and {choice.refused}; give recipe.validation"
        return keep_choice(folder, choice, refused=why)

    def _choice(self, rows: RowTable) -> Choice:
        pilot, count = self.config.pilot, self.num_rows
        if count is None:
            return of_a_stream()
        return choose(
            count,
            drawn_by_pilot(self.config, rows),
            wanted=pilot.validation_rows,
            data_seed=pilot.data_seed,
            share_refused="the pilot draws nearly every row",
        )

    def order_is_fixed(self) -> bool:
        """True: pilot draws the order."""
        return True

    def own_order(self, num_rows: int) -> npt.NDArray[np.int64] | None:
        """None: a recipe has rows, the order is pilot's to draw."""
        return None

    def run_facts(self) -> Mapping[str, Any]:
        """Nothing: the configuration says it all."""
        return {}

    def make_engine(
        self,
        *,
        order: npt.NDArray[np.int64],
        first_step: int,
        observer: Observer,
        attempt: int = 1,
    ) -> NativeEngine:
        """The native engine over the recipe."""
        engine = NativeEngine(
            self.recipe,
            self.config,
            order=order,
            first_step=first_step,
            observer=observer,
            attempt=attempt,
        )
        engine.restored = begin(engine, self._module_path)
        return engine
