"""The numbers and rows of one step over all processes that share it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain, zip_longest
from itertools import count as count_up
from typing import Any

import torch
import torch.distributed as dist

from pilot.engines.hf.rows import Rows
from pilot.errors import UsageError

_MEETING_SECS = 300.0
_MEETINGS = count_up()


def num_ranks() -> int:
    """Processes that train together."""
    alone = not (dist.is_available() and dist.is_initialized())
    return 1 if alone else dist.get_world_size()


def own_rank() -> int:
    """Which of them this one is."""
    return dist.get_rank() if num_ranks() > 1 else 0


def require_everywhere(what: str) -> None:
    """Make sure that all processes have come here: what follows needs every one of them.

    Raises:
        UsageError: one does not come; without this the others would wait for it for ever.
    """
    if num_ranks() == 1:
        return
    store = dist.distributed_c10d._get_default_store()
    key, deadline = f"pilot/{what}/{next(_MEETINGS)}", time.monotonic() + _MEETING_SECS
    store.add(key, 1)
    while store.add(key, 0) < num_ranks():
        if time.monotonic() > deadline:
            raise UsageError(
                f"{what} has begun in {store.add(key, 0)} of {num_ranks()} processes\n"
                f"    rule:   every process gives {what} to its Trainer; the first one writes\n"
                f"    remedy: add {what} without asking for the rank"
            )
        time.sleep(0.02)


def over_ranks(loss: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The step of all processes: the mean of their losses, the sum of their tokens.

    A process's loss is scaled so that the mean of the gradients, which is what is applied, is
    that of the whole step. Gradient norms are taken after they were averaged.

    Args:
        loss: this process's loss of the step, shape [].
        counts: supervised tokens, tokens, longest row; shape [3], on the same device.
    """
    if num_ranks() == 1:
        return loss, counts
    sums = torch.cat([loss.to(counts).reshape(1), counts[:2]])
    longest = counts[2:].clone()
    dist.all_reduce(sums)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    return sums[0] / dist.get_world_size(), torch.cat([sums[1:], longest])


def in_order(batches_of: Sequence[Sequence[Rows]]) -> Rows:
    """The rows of a step: its first micro-batch of each process, then the second, ...

    That is the order in which one process with the whole micro-batch draws them.

    Args:
        batches_of: the micro-batches of each process.
    """
    return tuple(chain.from_iterable(chain.from_iterable(zip_longest(*batches_of, fillvalue=()))))


def capacity_of(args: Any) -> int:
    """Numbers that hold a process's rows of one step, however a sampler shares them out."""
    width = int(args.train_batch_size) * int(args.gradient_accumulation_steps)
    return 1 + int(args.gradient_accumulation_steps) + width * num_ranks()


def send_rows(batches: Sequence[Rows], capacity: int, device: torch.device) -> torch.Tensor:
    """Begin to collect the rows of all processes; shape [processes, capacity], on ``device``.

    Nothing is read from the device: ``received_rows`` does that, a step later.
    """
    flat = [len(batches), *(len(batch) for batch in batches), *chain.from_iterable(batches)]
    if len(flat) > capacity:  # a batch sampler with sizes of its own
        flat = [-1]
    flat += [0] * (capacity - len(flat))
    mine = torch.tensor(flat, dtype=torch.int64, device=device)
    found = [torch.empty_like(mine) for _ in range(num_ranks())]
    dist.all_gather(found, mine)
    return torch.stack(found)


def received_rows(sent: torch.Tensor) -> Rows:
    """The rows of a step in their order; empty where one process could not tell."""
    batches_of = []
    for count, *numbers in sent.tolist():
        if count < 0:
            return ()
        lengths, rows = numbers[:count], numbers[count:]
        starts = [sum(lengths[:i]) for i in range(count)]
        batches_of.append([tuple(rows[s : s + n]) for s, n in zip(starts, lengths, strict=True)])
    return in_order(batches_of)


def share_of(row_ids: Sequence[int], size: int) -> list[Rows]:
    """This process's micro-batches of ``size`` when ``row_ids`` are trained as one step.

    A last piece that is too short for all processes goes on with the first rows again, as
    accelerate's batches do: each process must take its part in every gradient.
    """
    num, rank = num_ranks(), own_rank()
    batches = []
    for begin in range(0, len(row_ids), size * num):
        piece = list(row_ids[begin : begin + size * num])
        width = min(size, -(-len(piece) // num))
        while len(piece) < width * num:
            piece += list(row_ids[: width * num - len(piece)])
        batches.append(tuple(int(row) for row in piece[rank * width : (rank + 1) * width]))
    return batches
