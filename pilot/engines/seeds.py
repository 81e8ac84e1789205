"""Seeds and random states of a process: Python, NumPy, torch (CPU and every GPU)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed every generator that initialisation and dropout may use."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


RawState = tuple[Any, Any, torch.Tensor, Sequence[torch.Tensor]]


def raw_state(*, with_gpus: bool = True) -> RawState:
    """All random states as the generators give them: cheap enough for every batch.

    Without those of the GPUs nothing waits for a device.
    """
    cuda = torch.cuda.get_rng_state_all() if with_gpus and torch.cuda.is_available() else []
    return random.getstate(), np.random.get_state(legacy=True), torch.get_rng_state(), cuda


def random_state(raw: RawState | None = None, *, with_gpus: bool = True) -> dict[str, Any]:
    """All random states as plain values and tensors (loadable with ``weights_only=True``).

    ``raw``: those of an earlier moment instead of now's.
    """
    python, numpy, cpu, cuda = raw or raw_state(with_gpus=with_gpus)
    name, keys, position, has_gauss, cached = numpy
    return {
        "python": python,
        "numpy": (
            str(name),
            torch.from_numpy(np.array(keys, dtype=np.int64)),
            int(position),
            int(has_gauss),
            float(cached),
        ),
        "torch": cpu,
        "cuda": list(cuda),
    }


def cpu_state_of(seed: int) -> dict[str, Any]:
    """The random states, without those of the GPUs, that ``seed`` gives; none is moved."""
    outside = random_state(with_gpus=False)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    try:
        return random_state(with_gpus=False)
    finally:
        set_random_state(outside)


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restore what ``random_state`` returned."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
