"""Measures one optimizer step: the same probe in every engine.

Nothing is read from the device inside a step: the numbers of step k are packed into one small
tensor and read while step k + 1 runs (``probe_record.py``). Of large tensors only a fixed sample is
looked at (``probe_sample.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pilot.probe_record import Pending, StepFacts, received, send
from pilot.probe_sample import embedding_rows, lone_embeddings, sample_indices
from pilot.records import StepRecord


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
        self._indices = [sample_indices(param) for param in self.params]
        sizes = [
            p.numel() if i is None else len(i)
            for p, i in zip(self.params, self._indices, strict=True)
        ]
        scales = [p.numel() / size for p, size in zip(self.params, sizes, strict=True)]
        self._scales = torch.tensor(scales, dtype=torch.float64, device=self.device)
        self._sizes = sizes
        self._embeddings = lone_embeddings(model, self.params)
        self._touched: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.max_grad_norms = torch.zeros(len(sizes), dtype=torch.float64, device=self.device)
        self.had_grad = [False] * len(sizes)
        self._before = self._sample()
        self.loss_sum = self._zero()
        self._grad_norm = self._zero()
        self._clip_coef = self._zero()
        self._pending: Pending | None = None

    def start_step(self, batches: Sequence[Any]) -> None:
        """Forget the last step's sums; remember the embedding rows that these batches use.

        A batch is a mapping; of anything else no rows are known.
        """
        self.loss_sum = self._zero()
        self._touched = {}
        for index in self._embeddings:
            ids = [b["input_ids"].reshape(-1) for b in batches if _has_ids(b)]
            if ids:
                rows = embedding_rows(torch.cat(ids), self.params[index].shape[0])
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
        numbers = torch.stack(
            [
                self.loss_sum,
                self._grad_norm.double(),
                self._clip_coef.double(),
                *self._measured_update(),
            ]
        )
        if counts is not None:
            numbers = torch.cat([numbers, counts.to(numbers)])
        if contents is not None:
            numbers = torch.cat([numbers, contents.to(numbers).reshape(1)])
        self._pending = send(
            facts, numbers, loss_scale=loss_scale, skipped=skipped, is_mean=is_mean
        )

    def _measured_update(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The relative update of all weights, its median over the tensors, the weights' norm."""
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
        return (
            torch.sqrt(update_sq.sum() / weight_sq.sum()),
            ratios.median() if self.params else self._zero(),
            torch.sqrt(total),
        )

    def collect(self) -> StepRecord | None:
        """The record of the last finished step, or nothing when it was collected already."""
        pending, self._pending = self._pending, None
        return received(pending) if pending is not None else None

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


def _dense_values(grad: torch.Tensor) -> torch.Tensor:
    """The gradient's values; of a sparse one those it has (the others are 0)."""
    return grad.coalesce().values() if grad.is_sparse else grad


def _sums_of_squares(values: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """The sum of squares of each of the consecutive parts that ``sizes`` cuts ``values`` into."""
    if not sizes:
        return torch.zeros(0, dtype=torch.float64, device=values.device)
    return torch.stack(torch._foreach_norm(torch.split(values, list(sizes)))) ** 2
