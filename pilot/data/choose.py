"""Which rows the pilot trains on, and their order: the full run's own, or representative."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pilot.config import Config
from pilot.data.audit import order_audit
from pilot.data.order import full_order
from pilot.data.representative import representative_order
from pilot.plan import Plan
from pilot.view import RowTable


def choose_order(
    config: Config,
    plan: Plan,
    rows: RowTable,
    own: npt.NDArray[np.int64] | None = None,
) -> tuple[npt.NDArray[np.int64], Mapping[str, Any]]:
    """Row ids in drawing order (int64, shape [steps * rows per step]) and the full run's audit.

    Rows of an extended baseline follow behind; without an undecided event they are not used.

    The full run's own order is audited in either case: it is what will be trained on later. ``own``
    are the first draws of the user's own loader: they are the order then, and are audited.
    """
    num_rows = len(rows.num_tokens)
    if own is None and not num_rows:
        return np.empty(0, dtype=np.int64), {}  # a stream: its order is its own
    if own is not None:
        needed = plan.num_rows_needed + plan.extension_steps * plan.rows_per_step
        begin = plan.start_step * plan.rows_per_step
        return own[begin : begin + needed], order_audit(rows.source[own], row_ids=own)
    shuffle = bool(config.recipe.get("shuffle", True))
    first = plan.start_step * plan.rows_per_step
    audited = full_order(num_rows, 2 * num_rows, config.pilot.data_seed, shuffle)
    audit = order_audit(rows.source[audited], row_ids=audited)
    if config.pilot.data == "prefix":
        order = full_order(
            num_rows, plan.num_rows_needed, config.pilot.data_seed, shuffle, start=first
        )
    else:
        order = representative_order(
            plan.num_rows_needed,
            guaranteed_within=plan.pilot_steps * plan.rows_per_step,
            num_tokens=rows.num_tokens,
            source=rows.source,
            data_seed=config.pilot.data_seed,
            micro_batch_size=config.batch.micro_batch_size,
        )
    num_more = max(0, plan.extension_steps - plan.cooldown_steps) * plan.rows_per_step
    return np.concatenate([order, _further(order, num_more, num_rows, config)]), audit


def _further(
    order: npt.NDArray[np.int64], num_more: int, num_rows: int, config: Config
) -> npt.NDArray[np.int64]:
    """Rows for an extended baseline: those that ``order`` has drawn least often come first."""
    shuffle = bool(config.recipe.get("shuffle", True))
    candidates = full_order(num_rows, num_rows, config.pilot.data_seed, shuffle)
    drawn = np.bincount(order, minlength=num_rows)[candidates]
    return np.resize(candidates[np.argsort(drawn, kind="stable")], num_more)
