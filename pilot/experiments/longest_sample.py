"""Forward and backward on the longest rows before step 1: memory runs out here or not at all.

A run that is short of memory usually dies hours later, at its first long batch. No optimizer step
is taken and the random state is put back, so the run itself is not touched.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from pilot.memory import memory_limit_bytes, peak_memory_bytes, reset_peak
from pilot.records import Evidence, Resource

if TYPE_CHECKING:
    import numpy.typing as npt

    from pilot.engines.base import Engine


def measure(
    engine: Engine, num_tokens: npt.NDArray[np.int64], size: int
) -> tuple[Evidence, Resource]:
    """One micro-batch of the longest rows.

    Args:
        engine: a fresh or restored engine.
        num_tokens: length of every training row in tokens, shape [rows].
        size: rows of a micro-batch.
    """
    order = np.argsort(-num_tokens, kind="stable")[:size]
    row_ids = tuple(int(i) for i in order)
    started = time.perf_counter()
    reset_peak(engine.device)
    loss = engine.try_rows(row_ids)
    peak = peak_memory_bytes(engine.device)
    evidence = Evidence(
        experiment="longest_sample",
        scale="full",
        step=engine.step + 1,
        values={
            "row_ids": list(row_ids),
            "longest_tokens": int(num_tokens[order[0]]) if len(order) else 0,
            "loss": loss,
        },
    )
    resource = Resource(
        kind="memory_longest",
        step=engine.step + 1,
        secs=time.perf_counter() - started,
        peak_memory_bytes=peak,
        num_bytes=memory_limit_bytes(engine.device),
    )
    return evidence, resource
