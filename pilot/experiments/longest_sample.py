"""Forward and backward on the longest rows before step 1: memory runs out here or not at all.

A run that is short of memory usually dies hours later, at its first long batch. No optimizer step
is taken and the random state is put back, so the run itself is not touched.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from pilot.engines import seeds
from pilot.engines.guard import guard
from pilot.engines.precision import autocast, to_device
from pilot.memory import memory_limit_bytes, peak_memory_bytes, reset_peak
from pilot.records import Evidence, Resource

if TYPE_CHECKING:
    import numpy.typing as npt

    from pilot.engines.native import NativeEngine


def measure(engine: NativeEngine, num_tokens: npt.NDArray[np.int64]) -> tuple[Evidence, Resource]:
    """One micro-batch of the longest rows.

    Args:
        engine: a fresh or restored engine.
        num_tokens: length of every training row in tokens, shape [rows].
    """
    size = engine.config.batch.micro_batch_size
    order = np.argsort(-num_tokens, kind="stable")[:size]
    row_ids = tuple(int(i) for i in order)
    state, started = seeds.random_state(), time.perf_counter()
    buffers = {name: b.detach().clone() for name, b in engine.model.named_buffers()}
    reset_peak(engine.device)
    with guard("longest sample", step=engine.step + 1, row_ids=row_ids):
        batch = engine.recipe.collate([engine.recipe.train[i] for i in row_ids])
        count = int(engine.recipe.num_supervised(batch).sum())
        moved = to_device(batch, engine.device, engine.dtype)
        engine.model.train()
        with autocast(engine.config.precision, engine.device):
            total = engine.recipe.losses(engine.model, moved).sum()
        (total / max(1, count)).backward()  # type: ignore[no-untyped-call]
        loss = float(total.detach()) / max(1, count)
    peak = peak_memory_bytes(engine.device)
    engine.optimizer.zero_grad(set_to_none=True)
    for name, buffer in engine.model.named_buffers():
        buffer.copy_(buffers[name])  # running statistics are state of the run
    seeds.set_random_state(state)
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
