"""A recipe of the native engine as a workload: its rows, its sets, the engine over it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pilot.config import Config
from pilot.data.audit import audit_rows
from pilot.engines.base import Observer
from pilot.engines.complete import CompleteRecipe, complete
from pilot.engines.contract import batch_mistakes, structure_mistakes
from pilot.engines.native import NativeEngine
from pilot.engines.own_optimizer import (
    has_own_scheduler,
    planned_rates,
    rate_mistakes,
    schedule_mistakes,
)
from pilot.errors import ConfigError, Mistake, UsageError
from pilot.recipe import RowFacts
from pilot.schedule import Schedule, full_schedule

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

OWN_RATES = "trainer"  # full_run.schedule: the plan takes the rates that the user's code gives


class NativeWorkload:
    """The rows of a built recipe; pilot draws their order.

    Args:
        recipe: what the recipe's ``build`` returned.
        config: the validated configuration.
        name: the recipe's file name, for messages.
    """

    def __init__(self, recipe: Any, config: Config, name: str) -> None:
        self._built, self.config, self._name = recipe, config, name

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
        found = rate_mistakes(self._built, self.config, model, self._schedule.schedule_steps)
        rates = None if found else self.own_rates(model)
        if rates is not None and self.config.full_run.schedule != OWN_RATES:
            found = schedule_mistakes(rates, self._schedule)
        return found

    def own_rates(self, model: torch.nn.Module) -> npt.NDArray[np.float64] | None:
        """The rates of every group and step by the recipe's own scheduler; None: it has none."""
        if not has_own_scheduler(self._built):
            return None
        steps = self._schedule.schedule_steps
        return planned_rates(self._built, self.config, model, steps)

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

    def own_order(self, num_rows: int) -> npt.NDArray[np.int64] | None:
        """None: a recipe has rows, the order is pilot's to draw."""
        return None

    def make_engine(
        self,
        *,
        order: npt.NDArray[np.int64],
        first_step: int,
        observer: Observer,
        attempt: int = 1,
    ) -> NativeEngine:
        """The native engine over the recipe."""
        return NativeEngine(
            self.recipe,
            self.config,
            order=order,
            first_step=first_step,
            observer=observer,
            attempt=attempt,
        )
