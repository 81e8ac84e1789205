"""A recipe of the native engine as a workload: its rows, its sets, the engine over it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilot.config import Config
from pilot.data.audit import audit_rows
from pilot.engines.base import Observer
from pilot.engines.native import NativeEngine
from pilot.engines.resume_from import begin
from pilot.errors import UsageError
from pilot.recipe import Recipe, RowFacts

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class NativeWorkload:
    """The rows of a built recipe; pilot draws their order.

    Args:
        recipe: what the recipe's ``build`` returned.
        config: the validated configuration.
        module_path: the recipe's file.
    """

    def __init__(self, recipe: Recipe, config: Config, module_path: Path) -> None:
        self.recipe, self.config, self._name = recipe, config, module_path.name
        self._module_path = module_path

    @property
    def num_rows(self) -> int:
        """Training rows."""
        return len(self.recipe.train)

    @property
    def validation_rows(self) -> Mapping[str, int]:
        """Rows of each validation set."""
        return {name: len(rows) for name, rows in self.recipe.validation.items()}

    def require_contract(self) -> None:
        """What ``build`` returned must have the parts that are used.

        Raises:
            TypeError: names what is missing or of the wrong kind.
        """
        recipe = self.recipe
        for method in ("facts", "build_model", "collate", "num_supervised", "losses"):
            if not callable(getattr(recipe, method, None)):
                raise TypeError(f"build() must return an object with a method {method}()")
        if not isinstance(getattr(recipe, "validation", None), Mapping):
            raise TypeError("recipe.validation must be a mapping {name: sequence of examples}")
        for name, rows in {"train": recipe.train, **recipe.validation}.items():
            if not (hasattr(rows, "__len__") and hasattr(rows, "__getitem__")):
                raise TypeError(
                    f"{name} must be a sequence (with a length and an index) of examples"
                )
            if len(rows) == 0:
                raise TypeError(f"{name} has no examples")

    def facts(self) -> list[RowFacts]:
        """Source and length of every training row.

        Raises:
            UsageError: the recipe's ``facts`` fails on a row.
        """
        facts = []
        for row, example in enumerate(self.recipe.train):
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
        """What the label audit found in each set."""
        sets = {"train": self.recipe.train, **self.recipe.validation}
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
