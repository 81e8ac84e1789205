"""Per-example validation losses: fixed rows, evaluation mode, no gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pilot.engines.guard import guard, require_shape
from pilot.engines.precision import autocast, to_device

if TYPE_CHECKING:
    from pilot.engines.native import NativeEngine


def pick_rows(num_rows: int, limit: int | None, data_seed: int) -> list[int]:
    """The rows of a validation set that are evaluated: all, or a fixed random ``limit`` of them."""
    if limit is None or num_rows <= limit:
        return list(range(num_rows))
    chosen = np.random.default_rng((data_seed, num_rows)).permutation(num_rows)[:limit]
    return sorted(int(i) for i in chosen)


def evaluate(
    engine: NativeEngine, name: str, examples: Sequence[Any], rows: Sequence[int]
) -> tuple[list[float], list[int]]:
    """Loss sums and supervised tokens of each row, in the order of ``rows``.

    The model is left in evaluation mode; the next training step sets it back. A loss that is not
    finite is returned as it is.
    """
    recipe, size = engine.recipe, engine.config.batch.micro_batch_size
    sums: list[torch.Tensor] = []
    counts: list[int] = []
    engine.model.eval()
    with torch.no_grad():
        for begin in range(0, len(rows), size):
            chunk = rows[begin : begin + size]
            with guard(f"validation ({name})", step=engine.step, row_ids=chunk):
                batch = recipe.collate([examples[i] for i in chunk])
                supervised = recipe.num_supervised(batch)
                require_shape("num_supervised", supervised, len(chunk))
                counts.extend(int(n) for n in supervised.tolist())
                moved = to_device(batch, engine.device, engine.dtype)
                with autocast(engine.config.precision, engine.device):
                    losses = recipe.losses(engine.model, moved)
                require_shape("losses", losses, len(chunk))
                sums.append(losses.double())
    values = torch.cat(sums).tolist() if sums else []
    return [float(v) for v in values], counts
