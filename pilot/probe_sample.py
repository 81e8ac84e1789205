"""Which elements of the weights the probe looks at.

The relative update is exact for tensors of at most ``SAMPLE_ELEMENTS`` elements and estimated from
a fixed random sample of each larger one (the sum of squares scaled by numel / sample; its relative
standard error is about sqrt((kurtosis - 1) / (4 n)), 1 to 2 percent for n = 4096 and heavy-tailed
updates). Of an untied input embedding only rows of the batch count, in |dW| and in |W|: the others
have no gradient in this step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

SAMPLE_ELEMENTS = 4096
_SAMPLE_SEED = 20_240_917  # any fixed number: which elements are looked at must never change
_MAX_EMBEDDING_ROWS = 512


def sample_indices(param: torch.Tensor) -> torch.Tensor | None:
    """The elements of ``param`` to look at, int64, on its device; None: all of them."""
    count = param.numel()
    if count <= SAMPLE_ELEMENTS:
        return None
    generator = torch.Generator().manual_seed(_SAMPLE_SEED + count)
    return (
        torch.randint(count, (SAMPLE_ELEMENTS,), generator=generator).sort().values.to(param.device)
    )


def lone_embeddings(model: torch.nn.Module, params: Sequence[torch.Tensor]) -> list[int]:
    """The input embedding's index when no other module uses its weight, else nothing.

    Position tables are embeddings too, but are not indexed by token ids: only what the model itself
    calls its input embedding counts.
    """
    getter = getattr(model, "get_input_embeddings", None)
    embedding = getter() if callable(getter) else None
    if not isinstance(embedding, torch.nn.Embedding):
        return []
    users: dict[int, int] = {}
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, torch.nn.Parameter):
            users[id(weight)] = users.get(id(weight), 0) + 1
    if users.get(id(embedding.weight)) != 1:
        return []
    return [
        i for i, p in enumerate(params) if p is embedding.weight and p.numel() > SAMPLE_ELEMENTS
    ]


def embedding_rows(ids: torch.Tensor, num_rows: int) -> torch.Tensor:
    """Rows of an embedding to look at: evenly spaced ids of the batch, illegal ones left out.

    A row that occurs twice counts twice, so nothing has to be sorted on the device. Whether an
    id is legal is the model's business: its own forward pass raises.

    Args:
        ids: the batch's token ids, shape [tokens].
        num_rows: rows that the embedding has.
    """
    stride = max(1, ids.numel() // _MAX_EMBEDDING_ROWS)
    return ids[::stride].long().clamp(0, num_rows - 1)
