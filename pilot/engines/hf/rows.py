"""Which rows a Trainer's loader draws, and how many tokens a batch has."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

IGNORED = -100
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


def record_batches(batch_sampler: Any, drawn: BatchList) -> None:
    """Let ``batch_sampler`` note every batch of row ids; the object itself stays in its place.

    Its class is replaced by a subclass: a loader forbids another batch sampler once it is built,
    and samplers are asked for attributes (``set_epoch``, ``batch_size``) that a wrapper would hide.
    """
    kind: Any = type(batch_sampler)
    base = getattr(kind, "_recorded", kind)

    class Recording(base):  # type: ignore[misc, valid-type]
        _recorded = base

        def __iter__(self) -> Iterator[Any]:
            drawn.clear()  # a new epoch: what an ended one drew ahead is not used
            for batch in base.__iter__(self):
                drawn.append(tuple(int(row) for row in batch))
                yield batch

    batch_sampler.__class__ = Recording


def planned_batches(trainer: Any, loader: Any, num_steps: int) -> list[list[Rows]]:
    """The micro-batches of the first ``num_steps`` steps, step by step, as the loader draws them.

    Those of this process, where several train together. Empty where rows have no ids. Random states
    are the caller's to keep.
    """
    sampler = inner_batch_sampler(loader)
    accumulate = trainer.args.gradient_accumulation_steps
    steps: list[list[Rows]] = []
    epoch = 0
    while sampler is not None and len(steps) < num_steps:
        loader.set_epoch(epoch)
        if hasattr(sampler, "set_epoch"):  # as the Trainer does: a loader's own stops at a shard
            sampler.set_epoch(epoch)
        batches = [tuple(int(row) for row in batch) for batch in loader.batch_sampler]
        if not batches:
            break
        steps += [batches[i : i + accumulate] for i in range(0, len(batches), accumulate)]
        epoch += 1
    loader.set_epoch(0) if sampler is not None else None
    return steps[:num_steps]


def count_tokens(trainer: Any, batches: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    """Supervised tokens, tokens and the longest row of a step's batches; float64, on their device.

    Without labels every row counts as one supervised unit (a pair, an episode).
    """
    parts = [_count(trainer, batch) for batch in batches]
    if not parts:
        return torch.zeros(3, dtype=torch.float64)
    stacked = torch.stack(parts)
    return torch.cat([stacked[:, :2].sum(dim=0), stacked[:, 2:].max(dim=0).values])


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


def _count(trainer: Any, batch: Mapping[str, Any]) -> torch.Tensor:
    tensors = [v for v in batch.values() if isinstance(v, torch.Tensor) and v.dim() > 0]
    first = tensors[0] if tensors else torch.zeros(0)
    num = supervised(trainer, batch)
    ids, mask = batch.get("input_ids"), batch.get("attention_mask")
    if isinstance(mask, torch.Tensor) and mask.dim() == 2:
        lengths = mask.sum(dim=1)
        total, longest = lengths.sum(), lengths.max()
    elif isinstance(ids, torch.Tensor):
        total, longest = first.new_tensor(ids.numel()), first.new_tensor(ids.shape[-1])
    else:
        total = longest = first.new_tensor(len(first))
    if num is None:
        num = first.new_tensor(len(first))
    return torch.stack([num.double(), total.double(), longest.double()])
