"""Held-out rows in a pilot's folder, and as the validation set of a native recipe without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pilot.config import Config
from pilot.data.choose import choose_order
from pilot.data.held_out import NAME, Choice
from pilot.data.order import full_order
from pilot.errors import PlanRefused
from pilot.folder import PilotFolder, read_json
from pilot.plan import make_plan
from pilot.view import RowTable

if TYPE_CHECKING:
    import numpy.typing as npt


def keep_choice(
    folder: PilotFolder, choice: Choice, *, refused: str, has_been_trained_on: bool = False
) -> dict[str, Any]:
    """Write the chosen rows for every arm; returns what ``survey.json`` says of them.

    Args:
        folder: the pilot's.
        choice: which rows, if any.
        refused: why there are none, as a sentence with what to do; used where none were chosen.
        has_been_trained_on: a checkpoint that the pilot starts from may have seen them.
    """
    if not choice.refused:
        np.save(folder.held_out, np.array(choice.row_ids, np.int64), allow_pickle=False)
    return {
        "mode": choice.mode,
        "num_rows": len(choice.row_ids),
        "refused": refused if choice.refused else "",
        "has_been_trained_on": has_been_trained_on,
    }


def kept_choice(folder: PilotFolder | None) -> Choice | None:
    """The rows that the survey chose; None: it chose none."""
    if folder is None or not folder.held_out.is_file():
        return None
    rows = np.load(folder.held_out, allow_pickle=False).tolist()
    mode = str(read_json(folder.survey)["held_out"]["mode"])
    return Choice(mode=mode, row_ids=tuple(rows))


def drawn_by_pilot(config: Config, rows: RowTable) -> npt.NDArray[np.int64] | None:
    """Every row that an arm of a native pilot may draw, or a run before its start has drawn.

    None where no plan can be made: it will say why.
    """
    num_rows = len(rows.num_tokens)
    try:
        plan = make_plan(config, {"num_train_rows": num_rows, "validation_rows": {NAME: 1}})
    except PlanRefused:
        return None
    order, _ = choose_order(config, plan, rows)
    shuffle = bool(config.recipe.get("shuffle", True))
    before = full_order(
        num_rows, plan.start_step * plan.rows_per_step, config.pilot.data_seed, shuffle
    )
    return np.concatenate([order, before])


class WithHeldOut:
    """A native recipe with rows of its training set, which no step draws, as validation set."""

    def __init__(self, recipe: Any, row_ids: Sequence[int]) -> None:
        self._recipe = recipe
        self.validation = {NAME: [recipe.train[int(row)] for row in row_ids]}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recipe, name)
