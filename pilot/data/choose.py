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
    config: Config, plan: Plan, rows: RowTable
) -> tuple[npt.NDArray[np.int64], Mapping[str, Any]]:
    """Row ids in drawing order (int64, shape [steps * rows per step]) and the full run's audit.

    The full run's own order is audited in either case: it is what will be trained on later.
    """
    num_rows = len(rows.num_tokens)
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
    return order, audit
