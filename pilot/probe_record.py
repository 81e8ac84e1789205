"""One step's numbers on their way from the device, and the record that they become."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pilot.records import StepRecord


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
class Pending:
    """What ``end_step`` knows and ``numbers`` will say once the device is there.

    Args:
        numbers: loss sum, gradient norm, clip coefficient, relative update, its median over the
            tensors, weight norm; then the counts and the contents where there are any.
        copied: the event behind the copy to the host; None: nothing has to be waited for.
    """

    facts: StepFacts
    numbers: torch.Tensor
    copied: Any
    loss_scale: float | None
    skipped: bool
    is_mean: bool


def send(
    facts: StepFacts,
    numbers: torch.Tensor,
    *,
    loss_scale: float | None,
    skipped: bool,
    is_mean: bool,
) -> Pending:
    """Begin to copy ``numbers`` to the host; ``received`` waits for them."""
    return Pending(
        facts=facts,
        numbers=_copy_to_host(numbers),
        copied=_copied(numbers),
        loss_scale=loss_scale,
        skipped=skipped,
        is_mean=is_mean,
    )


def received(pending: Pending) -> StepRecord:
    """The record of a step whose numbers were sent."""
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


def row_hash(row_ids: Sequence[int]) -> str:
    """A 64-bit hash of row ids in their order, as 16 hexadecimal digits."""
    data = np.asarray(row_ids, dtype="<i8").tobytes()
    return hashlib.blake2b(data, digest_size=8).hexdigest()


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
