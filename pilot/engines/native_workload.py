"""A recipe of the native engine as a workload: its rows, its sets, the engine over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pilot.config import Config
from pilot.data.audit import audit_rows
from pilot.data.held_out import choose
from pilot.engines.base import Observer
from pilot.engines.held_out import WithHeldOut, drawn_by_pilot, keep_choice, kept_choice
from pilot.engines.native import NativeEngine
from pilot.errors import UsageError
from pilot.folder import PilotFolder
from pilot.recipe import Recipe, RowFacts
from pilot.view import RowTable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class NativeWorkload:
    """The rows of a built recipe; pilot draws their order.

    Args:
        recipe: what the recipe's ``build`` returned.
        config: the validated configuration.
        name: the recipe's file name, for messages.
        folder: the pilot's, once it is surveyed.
    """

    def __init__(
        self, recipe: Recipe, config: Config, name: str, folder: PilotFolder | None = None
    ) -> None:
        kept = kept_choice(folder)
        self.recipe: Recipe = WithHeldOut(recipe, kept.row_ids) if kept else recipe
        self.config, self._name = config, name

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
        pilot = self.config.pilot
        choice = choose(
            self.num_rows,
            drawn_by_pilot(self.config, rows),
            wanted=pilot.validation_rows,
            data_seed=pilot.data_seed,
            share_refused="the pilot draws nearly every row",
        )
        if not choice.refused:
            self.recipe = WithHeldOut(self.recipe, choice.row_ids)
        why = f"the recipe has no validation set, and {choice.refused}; give recipe.validation"
        return keep_choice(folder, choice, refused=why)

    def order_is_fixed(self) -> bool:
        """True: pilot draws the order."""
        return True

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
