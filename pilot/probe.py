"""Measures one optimizer step: the same probe in every engine.

Nothing is read from the device inside a step: the numbers of step k are packed into one small
tensor and read while step k + 1 runs. The relative update is exact for tensors of at most
``SAMPLE_ELEMENTS`` elements and estimated from a fixed random sample of each larger one (the sum of
squares scaled by numel / sample; its relative standard error is about sqrt((kurtosis - 1) / (4 n)),
1 to 2 percent for n = 4096 and heavy-tailed updates). Of an untied input embedding only rows of the
batch count, in |dW| and in |W|: the others have no gradient in this step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pilot.records import StepRecord

SAMPLE_ELEMENTS = 4096
_SAMPLE_SEED = 20_240_917  # any fixed number: which elements are looked at must never change
_MAX_EMBEDDING_ROWS = 512


@dataclass(frozen=True, kw_only=True)
class StepFacts:
    """What the host knows of a step without asking the device.

    ``row_hash``: of the rows' contents, where they have no ids; empty: of their ids.
    """

    step: int
    learning_rate: float
    num_supervised_tokens: int
    num_tokens: int
    row_ids: tuple[int, ...]
    longest_tokens: int
    source_counts: Mapping[str, int]
    row_hash: str = ""


@dataclass(frozen=True, kw_only=True)
class _Pending:
    facts: StepFacts
    numbers: torch.Tensor
    copied: Any
    loss_scale: float | None
    skipped: bool
    is_mean: bool


class Probe:
    """Watches the trainable tensors of one model over a run.

    Args:
        model: the model; its trainable tensors are those with ``requires_grad``.
        device: where numbers are kept; None: where the first trainable tensor is.
    """

    def __init__(self, model: torch.nn.Module, device: torch.device | None = None) -> None:
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.params = [param for _, param in named]
        own = self.params[0].device if self.params else torch.device("cpu")
        self.device = device or own
        self._indices = [_sample_indices(param) for param in self.params]
        sizes = [
            p.numel() if i is None else len(i)
            for p, i in zip(self.params, self._indices, strict=True)
        ]
        scales = [p.numel() / size for p, size in zip(self.params, sizes, strict=True)]
        self._scales = torch.tensor(scales, dtype=torch.float64, device=self.device)
        self._sizes = sizes
        self._embeddings = _lone_embeddings(model, self.params)
        self._touched: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.max_grad_norms = torch.zeros(len(sizes), dtype=torch.float64, device=self.device)
        self.had_grad = [False] * len(sizes)
        self._before = self._sample()
        self.loss_sum = self._zero()
        self._grad_norm = self._zero()
        self._clip_coef = self._zero()
        self._pending: _Pending | None = None

    def start_step(self, batches: Sequence[Any]) -> None:
        """Forget the last step's sums; remember the embedding rows that these batches use.

        A batch is a mapping; of anything else no rows are known.
        """
        self.loss_sum = self._zero()
        self._touched = {}
        for index in self._embeddings:
            ids = [b["input_ids"].reshape(-1) for b in batches if _has_ids(b)]
            if ids:
                rows = self._rows_of(index, torch.cat(ids))
                self._touched[index] = (rows, self.params[index].detach()[rows].double())

    def add_losses(self, loss_sums: torch.Tensor) -> None:
        """Add a micro-batch: the per-example sums of its token losses, shape [rows].

        Where the loop has scaled its losses itself (``is_mean``): the micro-batch's share.
        """
        self.loss_sum = self.loss_sum + loss_sums.detach().double().sum()

    def grads_ready(self) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Pre-clip, unscaled norms: the global L2 norm and one per tensor (0 where no gradient)."""
        have = [i for i, p in enumerate(self.params) if p.grad is not None]
        grads = [_dense_values(p.grad) for p in self.params if p.grad is not None]
        norms = list(torch._foreach_norm(grads)) if grads else []
        total = torch.linalg.vector_norm(torch.stack(norms)) if norms else self._zero()
        if norms:
            seen = torch.stack(norms).to(self.max_grad_norms)
            # A NaN must not erase the largest finite norm that a tensor ever got.
            if len(have) == len(self.params):
                self.max_grad_norms = torch.fmax(self.max_grad_norms, seen)
            else:  # slices of single elements: an index tensor would cost a copy to the device
                for place, index in enumerate(have):
                    now = torch.fmax(self.max_grad_norms[index], seen[place])
                    self.max_grad_norms[index] = now
            for index in have:
                self.had_grad[index] = True
        self._grad_norm, self._clip_coef = total, torch.ones_like(total)
        return total, norms

    def norm_given(self, norm: Any) -> None:
        """Take the pre-clip norm of who holds the gradients; None: it has none, which reads 0.

        Args:
            norm: a number, or a tensor of one element, sharded or not.
        """
        whole = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        value = torch.as_tensor(0.0 if whole is None else whole, dtype=torch.float64)
        self._grad_norm = value.detach().to(self.device).reshape(())
        self._clip_coef = torch.ones_like(self._grad_norm)

    def clipped(self, max_norm: float) -> None:
        """Note what ``clip_grads_with_norm_`` applies: max/(norm + 1e-6), at most 1."""
        self._clip_coef = torch.clamp(max_norm / (self._grad_norm + 1e-6), max=1.0)

    def clipped_to_gradients(self) -> None:
        """Note how much smaller the gradients are now than when they were measured."""
        grads = [_dense_values(p.grad) for p in self.params if p.grad is not None]
        if grads:
            now = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
            coef = now / self._grad_norm
            self._clip_coef = torch.where(self._grad_norm > 0, coef.clamp(max=1.0), coef * 0 + 1)

    def end_step(
        self,
        facts: StepFacts,
        *,
        loss_scale: float | None,
        skipped: bool,
        is_mean: bool = False,
        counts: torch.Tensor | None = None,
        contents: torch.Tensor | None = None,
    ) -> None:
        """Measure the update and queue the step's numbers for reading.

        Args:
            facts: what the host knows of the step.
            loss_scale: the scale that the gradients had, null without a scaler.
            skipped: whether the scaler skipped the step.
            is_mean: the losses that were added make the step's loss, not the sum of token losses.
            counts: supervised tokens, tokens and the longest row, on the device; they replace those
                of ``facts``. For a loop whose batches the host has not seen.
            contents: with ``counts``: a number below 2^53 that tells these rows from others, for
                rows without ids.
        """
        after = self._sample()
        change = _sums_of_squares(after - self._before, self._sizes) * self._scales
        weight = _sums_of_squares(after, self._sizes) * self._scales
        self._before = after
        update_sq, weight_sq = change.clone(), weight.clone()
        for index, (rows, before) in self._touched.items():
            now = self.params[index].detach()[rows].double()
            update_sq[index], weight_sq[index] = ((now - before) ** 2).sum(), (now**2).sum()
        ratios = torch.sqrt(update_sq / weight_sq.clamp_min(torch.finfo(torch.float64).tiny))
        total = weight.sum()
        numbers = torch.stack(
            [
                self.loss_sum,
                self._grad_norm.double(),
                self._clip_coef.double(),
                torch.sqrt(update_sq.sum() / weight_sq.sum()),
                ratios.median() if self.params else self._zero(),
                torch.sqrt(total),
            ]
        )
        if counts is not None:
            numbers = torch.cat([numbers, counts.to(numbers)])
        if contents is not None:
            numbers = torch.cat([numbers, contents.to(numbers).reshape(1)])
        self._pending = _Pending(
            facts=facts,
            numbers=_copy_to_host(numbers),
            copied=_copied(numbers),
            loss_scale=loss_scale,
            skipped=skipped,
            is_mean=is_mean,
        )

    def collect(self) -> StepRecord | None:
        """The record of the last finished step, or nothing when it was collected already."""
        pending, self._pending = self._pending, None
        if pending is None:
            return None
        if pending.copied is not None:
            pending.copied.synchronize()
        values = pending.numbers.tolist()
        loss_sum, grad_norm, clip_coef, update, median, param_norm, *counts = values
        facts = _counted(pending.facts, counts)
        num = facts.num_supervised_tokens
        loss = loss_sum / num if num else float("nan")
        loss = loss_sum if pending.is_mean else loss
        return StepRecord(
            step=facts.step,
            learning_rate=facts.learning_rate,
            loss=loss,
            num_supervised_tokens=num,
            num_tokens=facts.num_tokens,
            grad_norm=grad_norm,
            clip_coef=clip_coef,
            relative_update=update,
            relative_update_median=median,
            param_norm=param_norm,
            loss_scale=pending.loss_scale,
            step_skipped=pending.skipped,
            finite_loss=bool(np.isfinite(loss)),
            finite_grads=bool(np.isfinite(grad_norm)),
            finite_params=bool(np.isfinite(param_norm)),
            row_ids=facts.row_ids,
            row_hash=facts.row_hash or row_hash(facts.row_ids),
            longest_tokens=facts.longest_tokens,
            source_counts=facts.source_counts,
        )

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs beyond the weights."""
        return {
            "names": list(self.names),
            "max_grad_norms": self.max_grad_norms.cpu().clone(),
            "had_grad": list(self.had_grad),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``; the weights must have been restored before."""
        self.max_grad_norms = state["max_grad_norms"].to(self.device).clone()
        self.had_grad = list(state["had_grad"])
        self._before = self._sample()
        self._pending = None

    def _rows_of(self, index: int, ids: torch.Tensor) -> torch.Tensor:
        """Rows of an embedding to look at: evenly spaced ids of the batch, illegal ones left out.

        A row that occurs twice counts twice, so nothing has to be sorted on the device. Whether an
        id is legal is the model's business: its own forward pass raises.
        """
        stride = max(1, ids.numel() // _MAX_EMBEDDING_ROWS)
        return ids[::stride].long().clamp(0, self.params[index].shape[0] - 1)

    def _sample(self) -> torch.Tensor:
        parts = []
        for param, index in zip(self.params, self._indices, strict=True):
            flat = param.detach().reshape(-1)
            parts.append(flat if index is None else torch.index_select(flat, 0, index))
        return (
            torch.cat(parts).double()
            if parts
            else torch.zeros(0, dtype=torch.float64, device=self.device)
        )

    def _zero(self) -> torch.Tensor:
        return torch.zeros((), dtype=torch.float64, device=self.device)


def _has_ids(batch: object) -> bool:
    return isinstance(batch, Mapping) and isinstance(batch.get("input_ids"), torch.Tensor)


def _counted(facts: StepFacts, counts: Sequence[float]) -> StepFacts:
    if not counts:
        return facts
    supervised, tokens, longest, *contents = (int(count) for count in counts)
    return replace(
        facts,
        num_supervised_tokens=supervised,
        num_tokens=tokens,
        longest_tokens=longest,
        row_hash=f"{contents[0]:016x}" if contents else facts.row_hash,
    )


def row_hash(row_ids: Sequence[int]) -> str:
    """A 64-bit hash of row ids in their order, as 16 hexadecimal digits."""
    data = np.asarray(row_ids, dtype="<i8").tobytes()
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _sample_indices(param: torch.Tensor) -> torch.Tensor | None:
    count = param.numel()
    if count <= SAMPLE_ELEMENTS:
        return None
    generator = torch.Generator().manual_seed(_SAMPLE_SEED + count)
    return (
        torch.randint(count, (SAMPLE_ELEMENTS,), generator=generator).sort().values.to(param.device)
    )


def _dense_values(grad: torch.Tensor) -> torch.Tensor:
    """The gradient's values; of a sparse one those it has (the others are 0)."""
    return grad.coalesce().values() if grad.is_sparse else grad


def _lone_embeddings(model: torch.nn.Module, params: Sequence[torch.Tensor]) -> list[int]:
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


def _sums_of_squares(values: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """The sum of squares of each of the consecutive parts that ``sizes`` cuts ``values`` into."""
    if not sizes:
        return torch.zeros(0, dtype=torch.float64, device=values.device)
    return torch.stack(torch._foreach_norm(torch.split(values, list(sizes)))) ** 2


def _copy_to_host(numbers: torch.Tensor) -> torch.Tensor:
    if numbers.device.type != "cuda":
        return numbers
    host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
    return host.copy_(numbers, non_blocking=True)


def _copied(numbers: torch.Tensor) -> Any:
    if numbers.device.type != "cuda":
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event
