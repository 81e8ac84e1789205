"""The processes of one arm, as they talk to each other: over gloo, in a group of their own."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from pilot.engines import world

# How long a process waits for another one's word: as long as the largest state takes to be saved.
_PATIENCE = timedelta(hours=6)


class Team:
    """The processes of one arm, as they talk to each other; every method is called by all."""

    def __init__(self) -> None:
        self._group = dist.new_group(backend="gloo", timeout=_PATIENCE)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def tell(self, message: object) -> Any:
        """The message of process 0, in all of them."""
        box = [message]
        self._do(lambda: dist.broadcast_object_list(box, src=0, group=self._group))
        return box[0]

    def gather(self, item: object) -> list[Any]:
        """One item of each process, in their order."""
        found: list[Any] = [None] * self.size
        self._do(lambda: dist.all_gather_object(found, item, group=self._group))
        return found

    def share(self, state: object) -> Any:
        """The nested state of process 0 in all of them; its tensors travel one by one."""
        tensors: list[torch.Tensor] = []
        shape = self.tell(_without_tensors(state, tensors) if self.rank == 0 else None)
        if self.rank:
            tensors = [torch.empty(s, dtype=d) for s, d in _tensor_shapes(shape)]
        for tensor in tensors:
            values = tensor.detach().cpu().contiguous() if self.rank == 0 else tensor
            flat = values.reshape(-1).view(torch.uint8) if values.numel() else values.reshape(-1)
            self._do(functools.partial(dist.broadcast, flat, src=0, group=self._group))
        return state if self.rank == 0 else _with_tensors(shape, iter(tensors))

    def _do(self, call: Callable[[], object]) -> None:
        try:
            call()
        except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
            raise world.PeerLost(str(error)) from error


@functools.cache
def _team_of(group: object) -> Team:
    return Team()


def team() -> Team | None:
    """The processes that train together; None: this one trains alone."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return None
    return _team_of(dist.group.WORLD)


class _Place:
    """The place of a tensor in a state that travels without it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype


def _without_tensors(item: object, tensors: list[torch.Tensor]) -> Any:
    if isinstance(item, torch.Tensor):
        tensors.append(item)
        return _Place(item)
    if isinstance(item, Mapping):
        return {key: _without_tensors(inner, tensors) for key, inner in item.items()}
    if isinstance(item, (list, tuple)):
        return type(item)([_without_tensors(inner, tensors) for inner in item])
    return item


def _tensor_shapes(item: object) -> list[tuple[tuple[int, ...], torch.dtype]]:
    if isinstance(item, _Place):
        return [(item.shape, item.dtype)]
    if isinstance(item, Mapping):
        return [found for inner in item.values() for found in _tensor_shapes(inner)]
    if isinstance(item, (list, tuple)):
        return [found for inner in item for found in _tensor_shapes(inner)]
    return []


def _with_tensors(item: object, tensors: Iterator[torch.Tensor]) -> Any:
    if isinstance(item, _Place):
        return next(tensors)
    if isinstance(item, Mapping):
        return {key: _with_tensors(inner, tensors) for key, inner in item.items()}
    if isinstance(item, (list, tuple)):
        return type(item)([_with_tensors(inner, tensors) for inner in item])
    return item
