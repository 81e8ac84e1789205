"""The loss of one optimizer step over its micro-batches, in the way the recipe gives it.

* ``losses(model, batch)``: the sum of each example. The step's loss is their sum over the
  supervised units of the whole step.
* ``loss(model, batch)`` returns ``(sum, count)``: the same, with the counts known only after the
  forward passes. Micro-batches run backward over the first one's count; where the counts turn out
  to differ, the gradients are corrected by one factor before they are measured.
* ``loss(model, batch)`` returns a mean: micro-batches are averaged, weighted by their supervised
  units where the recipe counts them (``num_supervised``), by their rows otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

import torch

from pilot.engines.complete import CompleteRecipe
from pilot.engines.guard import ContractError, require_shape

Batch = Mapping[str, torch.Tensor]
_RULE = "must return one number (a mean) or a pair (sum, count), as tensors"


class StepLoss:
    """Takes the micro-batches of one step in their order.

    Args:
        recipe: what gives the loss.
        weights: supervised units of each micro-batch, as far as they are known before the loss.
    """

    def __init__(self, recipe: CompleteRecipe, weights: Sequence[int]) -> None:
        self._recipe, self._weights, self._total = recipe, weights, sum(weights)
        self._index = 0
        self._counts: list[int] = []
        self._estimate = 1
        self.is_mean = False

    @property
    def num_supervised(self) -> int:
        """Supervised units of the step; complete after the last micro-batch."""
        return sum(self._counts) if self._counts else self._total

    def part(
        self, model: torch.nn.Module, batch: Batch, num_rows: int
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """The next micro-batch: what runs backward (None: it counts for nothing), what is recorded.

        What is recorded is the sum of token losses, or a share of the step's loss (``is_mean``).

        Raises:
            ContractError: the recipe's loss has another shape or type.
        """
        weight, self._index = self._weights[self._index], self._index + 1
        if self._recipe.has_losses:
            sums = self._recipe.losses(model, batch)
            require_shape("losses", sums, num_rows)
            scaled = sums.sum() / self._total if self._total else sums.sum() * float("nan")
            return scaled, sums
        value = self._recipe.loss(model, batch)
        if isinstance(value, (tuple, list)):
            return self._summed(*sum_and_count(value))
        return self._averaged(one_number(value), weight)

    def finish(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """All micro-batches have run backward: correct the gradients for the counts there were."""
        if not self._counts or self.num_supervised == self._estimate:
            return
        grads = [p.grad for p in parameters if p.grad is not None]
        total = self.num_supervised
        torch._foreach_mul_(grads, self._estimate / total if total else float("nan"))

    def _summed(self, total: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.is_mean:
            raise _mixed()
        if not self._counts:
            self._estimate = max(1, count) * len(self._weights)
        self._counts.append(count)
        return total / self._estimate, total

    def _averaged(
        self, mean: torch.Tensor, weight: int
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        if self._counts:
            raise _mixed()
        self.is_mean = True
        if self._total and not weight:  # nothing to average: the mean of nothing is no number
            return None, mean.new_zeros(())
        share = mean * (weight / self._total if self._total else float("nan"))
        return share, share


def sums_of_rows(
    recipe: CompleteRecipe, model: torch.nn.Module, batch: Batch, counts: Sequence[int]
) -> tuple[torch.Tensor, list[int]]:
    """Loss sum and supervised units of each example of an evaluated batch.

    A recipe without ``losses`` is given one row at a time: ``counts`` has one entry then.
    """
    if recipe.has_losses:
        losses = recipe.losses(model, batch)
        require_shape("losses", losses, len(counts))
        return losses.double(), list(counts)
    value = recipe.loss(model, batch)
    if isinstance(value, (tuple, list)):
        total, count = sum_and_count(value)
        return total.double().reshape(1), [count]
    mean = one_number(value).double().reshape(1)
    return mean * counts[0] if counts[0] else torch.zeros_like(mean), list(counts)


def one_number(value: Any) -> torch.Tensor:
    """``value`` as a tensor without dimensions.

    Raises:
        ContractError: it is no tensor, or has more than one element.
    """
    if not isinstance(value, torch.Tensor):
        kind = type(value).__name__
        remedy = "return the loss tensor itself (of a model's output: output.loss)"
        raise ContractError("loss", f"a {kind}", _RULE, remedy)
    if value.numel() != 1:
        remedy = "one value per example is returned by losses(model, batch)"
        raise ContractError("loss", f"shape {tuple(value.shape)}", _RULE, remedy)
    return value.reshape(())


def sum_and_count(value: Sequence[Any]) -> tuple[torch.Tensor, int]:
    """The pair that a loss returned.

    Raises:
        ContractError: it is no pair of a number and a whole number from 0 on.
    """
    remedy = "return (sum of the losses, how many were summed)"
    if len(value) != 2:
        raise ContractError("loss", f"{len(value)} values", _RULE, remedy)
    count = value[1]
    if isinstance(count, torch.Tensor) and count.numel() == 1:
        count = count.item()
    whole = isinstance(count, Integral) or (isinstance(count, float) and count.is_integer())
    if not whole or isinstance(count, bool) or count < 0:
        raise ContractError("loss", f"the count {count!r}", "must count in whole numbers", remedy)
    return one_number(value[0]), int(count)


def _mixed() -> ContractError:
    rule = "must return the same kind for every micro-batch"
    return ContractError(
        "loss", "a mean and a pair", rule, "return always a mean, or always a pair"
    )
