"""The determinism floor: the first step twice from the same state, on the same rows.

On a CPU the floor is 0 (bit-identical); on a GPU it says how far two equal runs drift in one step,
which every later replay has to be compared with.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from pilot.engines.state import copy_state
from pilot.records import Evidence, StepRecord

if TYPE_CHECKING:
    from pilot.engines.base import Engine


def measure(engine: Engine, row_ids: tuple[int, ...]) -> Evidence:
    """Replay one step on ``row_ids`` twice; the engine is left exactly as it was.

    ``relative_spread`` is the larger of the relative differences of loss and gradient norm (0 when
    both runs gave the same bits, also the same NaN); ``max_param_diff`` is the largest absolute
    difference of any trainable element after the step.
    """
    state = copy_state(engine.snapshot())
    trainable = [p for p in engine.model.parameters() if p.requires_grad]
    first = engine.replay_step(state, row_ids)
    after = [p.detach().clone() for p in trainable]
    second = engine.replay_step(state, row_ids)
    differences = [
        float((a.double() - b.detach().double()).abs().max()) if a.numel() else 0.0
        for a, b in zip(after, trainable, strict=True)
        if not torch.equal(a, b)
    ]
    engine.restore(state)
    return Evidence(
        experiment="determinism",
        scale="full",
        step=first.step,
        values={
            "loss_a": first.loss,
            "loss_b": second.loss,
            "grad_norm_a": first.grad_norm,
            "grad_norm_b": second.grad_norm,
            "max_param_diff": max(differences, default=0.0),
            "relative_spread": _spread(first, second),
        },
    )


def _spread(a: StepRecord, b: StepRecord) -> float:
    return max(_relative(a.loss, b.loss), _relative(a.grad_norm, b.grad_norm))


def _relative(a: float, b: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    return abs(a - b) / max(abs(a), abs(b)) if math.isfinite(a - b) else math.inf
