"""The numbers of one step over all processes that share it."""

from __future__ import annotations

import torch


def over_ranks(loss: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The step of all processes: the mean of their losses, the sum of their tokens.

    A process's loss is scaled so that the mean of the gradients, which is what is applied, is
    that of the whole step. Gradient norms are taken after they were averaged.

    Args:
        loss: this process's loss of the step, shape [].
        counts: supervised tokens, tokens, longest row; shape [3], on the same device.
    """
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return loss, counts
    sums = torch.cat([loss.to(counts).reshape(1), counts[:2]])
    longest = counts[2:].clone()
    dist.all_reduce(sums)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    return sums[0] / dist.get_world_size(), torch.cat([sums[1:], longest])
