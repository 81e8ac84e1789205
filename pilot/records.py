"""The value types that an arm writes, and their files: append-only JSON lines.

Deterministic facts (``steps.NNN.jsonl``, ``validations.jsonl``, ``evidence.jsonl``) and resources
(``resources.jsonl``: seconds, tokens per second, bytes) are kept apart: the first are bit-identical
for the same seeds on a CPU. A number that is not finite is written as the string ``"NaN"``,
``"Infinity"`` or ``"-Infinity"``: it is recorded as such, never averaged away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """What was measured at one optimizer step (1-based, of the full run's own count).

    ``loss`` is the sum of the token losses over the supervised tokens, over all micro-batches, in
    nats per token. ``grad_norm`` is the global L2 norm before clipping, after unscaling.
    ``clip_coef`` is the factor that clipping applied (1.0: not clipped, or clipping is off).
    ``relative_update`` is |dW|/|W| over all trainable tensors, ``relative_update_median`` the
    median of the same ratio over tensors. ``param_norm`` is |W| after the step.
    """

    step: int
    learning_rate: float
    loss: float
    num_supervised_tokens: int
    num_tokens: int
    grad_norm: float
    clip_coef: float
    relative_update: float
    relative_update_median: float
    param_norm: float
    loss_scale: float | None
    step_skipped: bool
    finite_loss: bool
    finite_grads: bool
    finite_params: bool
    row_ids: tuple[int, ...]
    row_hash: str
    longest_tokens: int
    source_counts: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class ValidationRecord:
    """The per-example losses of one validation set after ``step`` optimizer steps.

    ``at`` names the planned place (``before``, ``warmup_end``, ``mid_peak``, ``peak_end``,
    ``run_end``, ``cooldown_end``). ``loss_sums`` (nats) and ``token_counts`` have one entry per
    example, in the same order at every validation; ``loss`` is their token-weighted mean.
    """

    at: str
    step: int
    name: str
    primary: bool
    loss: float
    loss_sums: tuple[float, ...]
    token_counts: tuple[int, ...]
    attempt: int


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What an experiment measured. ``values`` holds plain JSON values, without seconds."""

    experiment: str
    scale: str
    step: int
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Resource:
    """Seconds and bytes of one piece of work (``kind``: step, validation, checkpoint, ...)."""

    kind: str
    step: int
    secs: float
    peak_memory_bytes: int | None = None
    tokens_per_sec: float | None = None
    num_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How an arm ended; its completion marker (``outcome.json``).

    ``status``: ``completed``, ``stopped`` (non-finite: going on would measure nothing),
    ``decided`` (its difference to the baseline was decided before its end), ``identical`` (provably
    the baseline: not run, or not further), ``exception`` or ``out_of_memory`` (the recipe's; with
    place, step, rows and message).
    """

    COMPLETED: ClassVar[str] = "completed"
    STOPPED: ClassVar[str] = "stopped"
    DECIDED: ClassVar[str] = "decided"
    IDENTICAL: ClassVar[str] = "identical"
    EXCEPTION: ClassVar[str] = "exception"
    OUT_OF_MEMORY: ClassVar[str] = "out_of_memory"

    status: str
    last_step: int
    where: str = ""
    step: int | None = None
    row_ids: tuple[int, ...] = ()
    error_type: str = ""
    message: str = ""
    traceback_text: str = ""
    peak_memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check says about the records: a rule, the numbers, the limit and where it comes from.

    ``severity``: ``note``, ``warn``, ``undetermined`` (the rule could not decide: the gate becomes
    INCONCLUSIVE) or ``fail``. ``obj`` is the thing concerned: a tensor, row ids, an arm.
    """

    check: str
    severity: str
    category: str
    sentence: str
    step: int | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    limit: str = ""
    limit_source: str = ""
    obj: str = ""
    todo: str = ""


def join_attempts(attempts: Iterable[Iterable[StepRecord]]) -> list[StepRecord]:
    """One series from several attempts: a later attempt wins from its first step on."""
    joined: list[StepRecord] = []
    for attempt in attempts:
        records = list(attempt)
        if records:
            joined = [record for record in joined if record.step < records[0].step]
            joined.extend(records)
    return joined
