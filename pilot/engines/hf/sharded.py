"""Who shares out a Trainer's model or rows in a way that hides numbers: DeepSpeed, FSDP and others.

It is recognised from the training arguments where they are made, before anything of it is imported,
and from a Trainer that exists. What each hides is listed; a pilot, which must put a state back bit
for bit, is refused with that list. ``pilot.PilotCallback`` goes on with what can be seen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pilot.errors import UsageError

DEEPSPEED, FSDP, MEGATRON, TPU, SAGEMAKER = "DeepSpeed", "FSDP", "Megatron-LM", "TPU", "SageMaker"
TENSOR, DATA_PARALLEL = "tensor, context or sequence parallelism", "torch.nn.DataParallel"

_STATES = "exact states: no snapshot, restart, branch (so no cool-down and no arm) and no replay"
HIDES: Mapping[str, tuple[str, ...]] = {
    DEEPSPEED: (
        "norms of single gradients: p.grad is None, DeepSpeed keeps gradients in its partitions",
        "the norm before clipping is DeepSpeed's own (get_global_grad_norm), read after its step; "
        "0 where it has none yet",
        "relative updates, weights and their movement: under ZeRO a process holds a part of them",
        "steps that DeepSpeed's own loss scaler skips",
        _STATES,
    ),
    FSDP: (
        "norms of single gradients: a process holds a part of each (DTensor); the total is there",
        "relative updates, weights and their movement: a process holds a part of them",
        _STATES,
    ),
    MEGATRON: ("gradients, weights and states: Megatron-LM has its own loop around them", _STATES),
    TPU: ("everything that is read inside a step: a TPU traces the step as a whole", _STATES),
    SAGEMAKER: ("gradients, weights and states: SageMaker shares them out itself", _STATES),
    TENSOR: ("which process trains on which rows, and norms over parts of tensors", _STATES),
    DATA_PARALLEL: ("rows of a micro-batch: one process splits it over all GPUs that it sees",),
}
_REMEDIES: Mapping[str, str] = {
    DEEPSPEED: "pilot the same Trainer without deepspeed (launcher.num_processes for several "
    "processes), or attach pilot.PilotCallback to the run itself",
    FSDP: "pilot the same Trainer without fsdp (launcher.num_processes for several processes), or "
    "attach pilot.PilotCallback to the run itself",
    DATA_PARALLEL: "set CUDA_VISIBLE_DEVICES to one GPU, and launcher.num_processes for more",
}
_VARIABLES: Mapping[str, str] = {
    "ACCELERATE_USE_DEEPSPEED": DEEPSPEED,
    "ACCELERATE_USE_FSDP": FSDP,
    "ACCELERATE_USE_MEGATRON_LM": MEGATRON,
}
_TRUE = ("1", "true", "yes", "y", "on", "t")


def of_arguments(args: Any, environment: Mapping[str, str] = os.environ) -> str:
    """What the training arguments and accelerate's environment ask for; empty: nothing hidden."""
    if getattr(args, "deepspeed", None):
        return DEEPSPEED
    if getattr(args, "fsdp", None):
        return FSDP
    if getattr(args, "parallelism_config", None) is not None:
        return TENSOR
    for name, kind in _VARIABLES.items():
        if environment.get(name, "").strip().lower() in _TRUE:
            return kind
    return ""


def of_trainer(trainer: Any) -> str:
    """What a Trainer that exists trains with; empty: nothing is hidden."""
    kind = str(getattr(trainer.accelerator.distributed_type, "value", ""))
    known = {"DEEPSPEED": DEEPSPEED, "FSDP": FSDP, "MEGATRON_LM": MEGATRON, "XLA": TPU}
    if kind in known:
        return known[kind]
    if getattr(trainer, "is_deepspeed_enabled", False):
        return DEEPSPEED
    if getattr(trainer, "is_fsdp_enabled", False) or _has_sharded_weights(trainer):
        return FSDP
    if int(getattr(trainer.args, "n_gpu", 1)) > 1:
        return DATA_PARALLEL
    return of_arguments(trainer.args)


def hides_tensors(trainer: Any) -> bool:
    """Whether gradients and weights cannot be looked at tensor by tensor."""
    return of_trainer(trainer) not in ("", DATA_PARALLEL)


def refuse(kind: str) -> None:
    """Refuse a pilot of what hides its numbers.

    Raises:
        UsageError: with the list of what is hidden; nothing where ``kind`` is empty.
    """
    if kind:
        lines = "\n".join(f"    hidden: {line}" for line in HIDES[kind])
        remedy = _REMEDIES.get(kind, "attach pilot.PilotCallback to the run itself")
        raise UsageError(
            f"engine=transformers cannot pilot a Trainer under {kind}\n{lines}\n"
            f"    remedy: {remedy}"
        )


def _has_sharded_weights(trainer: Any) -> bool:
    from torch.distributed.tensor import DTensor

    return any(isinstance(p, DTensor) for p in trainer.model.parameters())
