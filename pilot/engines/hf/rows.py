"""Which rows a Trainer's loader draws, and how many tokens a batch has."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from pilot.engines import seeds

IGNORED = -100
_ODD = 1_000_003
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
Rows = tuple[int, ...]


class BatchList(deque[Rows]):
    """Row ids of the batches that a loader has drawn and nobody has taken yet."""

    def take(self, count: int) -> list[Rows]:
        """The next ``count`` batches; fewer where the loader draws none by row id."""
        return [self.popleft() for _ in range(min(count, len(self)))]


def inner_batch_sampler(loader: Any) -> Any:
    """The batch sampler that draws row ids, below accelerate's wrappers; None: rows have no ids."""
    found = getattr(loader, "batch_sampler", None)
    while found is not None and hasattr(found, "batch_sampler"):
        found = found.batch_sampler
    sampler = getattr(found, "sampler", None)
    infinite = type(sampler).__name__ == "_InfiniteConstantSampler"  # torch: an iterable dataset
    return None if found is None or infinite or dispatches(loader) else found


def dispatches(loader: Any) -> bool:
    """Whether process 0 draws all batches and hands out pieces: nobody else knows their rows."""
    state = getattr(loader, "state", None)
    name = type(loader).__name__
    return name == "DataLoaderDispatcher" and int(getattr(state, "num_processes", 1)) > 1


def length_of(loader: Any) -> float:
    """Batches of one epoch; infinite where the loader does not know."""
    try:
        return len(loader)
    except TypeError:
        return float("inf")


def record_batches(
    batch_sampler: Any, drawn: BatchList, before_fetch: Callable[[int], None]
) -> None:
    """Let ``batch_sampler`` note every batch of row ids; the object itself stays in its place.

    ``before_fetch`` is told the number of each batch in its epoch, before its rows are read.

    Its class is replaced by a subclass: a loader forbids another batch sampler once it is built,
    and samplers are asked for attributes (``set_epoch``, ``batch_size``) that a wrapper would hide.
    """
    kind: Any = type(batch_sampler)
    base = getattr(kind, "_recorded", kind)

    class Recording(base):  # type: ignore[misc, valid-type]
        _recorded = base

        def __iter__(self) -> Iterator[Any]:
            drawn.clear()  # a new epoch: what an ended one drew ahead is not used
            for index, batch in enumerate(base.__iter__(self)):
                drawn.append(tuple(int(row) for row in batch))
                before_fetch(index)
                yield batch

    batch_sampler.__class__ = Recording


def planned_batches(trainer: Any, loader: Any, num_steps: int) -> list[list[Rows]]:
    """The micro-batches of the first ``num_steps`` steps, step by step, as the loader draws them.

    Those of this process, where several train together. Empty where rows have no ids. Random
    states are the caller's to keep. A sampler without a generator of its own (groups of equal
    length) draws from torch's global one: its first epoch is known, the later ones depend on what
    the training draws between.
    """
    sampler = inner_batch_sampler(loader)
    accumulate = trainer.args.gradient_accumulation_steps
    steps: list[list[Rows]] = []
    epoch = 0
    while sampler is not None and len(steps) < num_steps:
        set_epoch(loader, sampler, epoch)
        if getattr(loader, "generator", None) is None:  # a loader draws a seed for an iterator
            torch.empty((), dtype=torch.int64).random_()
        batches = [tuple(int(row) for row in batch) for batch in loader.batch_sampler]
        if not batches:
            break
        steps += [batches[i : i + accumulate] for i in range(0, len(batches), accumulate)]
        epoch += 1
    if sampler is not None:
        set_epoch(loader, sampler, 0)
    return steps[:num_steps]


def set_epoch(loader: Any, batch_sampler: Any, epoch: int) -> None:
    """Begin ``epoch``, as the Trainer does; a loader of the user's own may know no epochs."""
    if hasattr(loader, "set_epoch"):
        loader.set_epoch(epoch)
    if hasattr(batch_sampler, "set_epoch"):
        batch_sampler.set_epoch(epoch)


@contextlib.contextmanager
def untouched(loader: Any) -> Iterator[None]:
    """Put back every random state, also of generators that the loader holds: they are the user's.

    What is drawn in between to look ahead must not move the run.
    """
    sampler = getattr(inner_batch_sampler(loader), "sampler", None)
    owned = [getattr(place, "generator", None) for place in (sampler, loader)]
    kept = [(generator, generator.get_state()) for generator in owned if generator is not None]
    state = seeds.random_state()
    try:
        yield
    finally:
        seeds.set_random_state(state)
        for generator, own in kept:
            generator.set_state(own)


def count_tokens(trainer: Any, batches: Sequence[Any]) -> torch.Tensor:
    """Supervised tokens, tokens and the longest row of a step's batches; float64, on their device.

    Without labels every row counts as one supervised unit (a pair, an episode).
    """
    parts = [_count(trainer, batch) for batch in batches]
    if not parts:
        return torch.zeros(3, dtype=torch.float64)
    stacked = torch.stack(parts)
    return torch.cat([stacked[:, :2].sum(dim=0), stacked[:, 2:].max(dim=0).values])


def contents_of(batches: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    """A number below 2^53 that tells a step's batches from others: for rows without ids.

    Computed where the batches are; fp64, shape []. Integer sums wrap around, the same everywhere.
    """
    total = torch.zeros((), dtype=torch.int64)
    for batch in batches:
        for name in sorted(batch):
            values = batch[name]
            if not isinstance(values, torch.Tensor) or not values.numel() or values.is_complex():
                continue
            flat = values.detach().reshape(-1).contiguous()
            if flat.is_floating_point():
                flat = flat.view(_BITS[flat.element_size()])
            places = torch.arange(1, flat.numel() + 1, device=flat.device) * _ODD
            total = total.to(flat.device) * _ODD + (flat.long() * places).sum() + flat.numel()
    return total.remainder(2**53).double()


def supervised(trainer: Any, batch: Mapping[str, Any]) -> torch.Tensor | None:
    """The number of supervised tokens of a batch as a tensor; None: it has no labels."""
    labels = batch.get("shift_labels")
    if labels is None:
        labels = batch.get("labels")
        if isinstance(labels, torch.Tensor) and labels.dim() > 1 and _shifts(trainer):
            labels = labels[..., 1:]
    if isinstance(labels, torch.Tensor) and not labels.is_floating_point():
        return labels.ne(IGNORED).sum()
    mask = batch.get("completion_mask")
    return mask.sum() if isinstance(mask, torch.Tensor) else None


def _shifts(trainer: Any) -> bool:
    """Whether the loss predicts the next token, so that the first label counts for nothing."""
    known = getattr(trainer, "_loss_shifts_labels", None)
    if known is not None:
        return bool(known)
    return "CausalLM" in type(trainer.accelerator.unwrap_model(trainer.model)).__name__


def _count(trainer: Any, batch: Any) -> torch.Tensor:
    if not isinstance(batch, Mapping):  # rows as they are: a rollout begins with its prompts
        rows = float(len(batch)) if hasattr(batch, "__len__") else 1.0
        return torch.tensor([rows, rows, 1.0], dtype=torch.float64, device=trainer.args.device)
    first = next((v for v in batch.values() if isinstance(v, torch.Tensor) and v.dim() > 0), None)
    first = torch.zeros(0, device=trainer.args.device) if first is None else first
    num = supervised(trainer, batch)
    ids, mask = batch.get("input_ids"), batch.get("attention_mask")
    places = batch.get("position_ids")
    if isinstance(mask, torch.Tensor) and mask.dim() == 2 and mask.numel():
        lengths = mask.sum(dim=1)
        total, longest = lengths.sum(), lengths.max()
    elif isinstance(ids, torch.Tensor) and ids.dim():
        total, longest = first.new_tensor(ids.numel()), first.new_tensor(ids.shape[-1])
        if isinstance(places, torch.Tensor) and places.shape == ids.shape and places.numel():
            longest = places.max() + 1  # rows joined to one, each counted from 0
    else:
        total = longest = first.new_tensor(len(first))
    if num is None:
        num = first.new_tensor(len(first))
    return torch.stack([num.double(), total.double(), longest.double()])
