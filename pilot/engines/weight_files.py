"""Reads the weights and states of a user's checkpoint: tensors and plain values, never code."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pilot.user_checkpoint import wrong

_SHOWN = 3


def read_weights(files: Sequence[Path]) -> dict[str, Any]:
    """What the files hold, by name, on the CPU: tensors of safetensors, or torch's own files.

    Raises:
        ConfigError: a file cannot be read, or not without running code.
    """
    found: dict[str, Any] = {}
    for path in files:
        if path.suffix == ".safetensors":
            with explained(path, path.name):
                from safetensors.torch import load_file

                found |= load_file(path)
        else:
            content = read_torch(path)
            found |= content if isinstance(content, dict) else {path.stem: content}
    return found


def read_torch(path: Path) -> Any:
    """What a torch file holds, on the CPU.

    Raises:
        ConfigError: it cannot be read, or not without running code.
    """
    core = getattr(np, "_core", None) or np.core
    # Plain containers of numbers and names; random states of NumPy are arrays of these dtypes.
    harmless: list[Any] = [core.multiarray._reconstruct, core.multiarray.scalar, np.ndarray]
    harmless += [np.dtype, argparse.Namespace]
    harmless += [type(np.dtype(kind)) for kind in "?bBhHiIlLqQefd"]
    with explained(path, path.name), torch.serialization.safe_globals(harmless):
        return torch.load(path, map_location="cpu", weights_only=True)


@contextlib.contextmanager
def explained(path: Path, what: str) -> Iterator[None]:
    """Say of which part of the checkpoint at ``path`` an exception speaks.

    Raises:
        ConfigError: in place of what was raised.
    """
    from pilot.errors import PilotError

    try:
        yield
    except PilotError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        if type(error).__name__ == "UnpicklingError" or "weights_only" in text.lower():
            text = f"it holds objects that only running code could make ({_culprit(error)})"
            remedy = "save weights, optimizer state and step as tensors and plain values"
        else:
            text = f"{type(error).__name__}: {text}"
            remedy = "take an earlier checkpoint, or the script and model that it was saved with"
        raise wrong(path, f"{what} cannot be restored: {text}", remedy) from error


def _culprit(error: BaseException) -> str:
    """What the refused file wanted to make, from torch's long message."""
    text = " ".join(str(error).split())
    for mark in ("Unsupported global: GLOBAL ", "WeightsUnpickler error: "):
        if mark in text:
            return text.partition(mark)[2].partition(" was not")[0][:120]
    return text[-120:]


def listed(what: str, names: Collection[str]) -> str:
    """The first few of ``names`` and how many there are."""
    shown = ", ".join(sorted(names)[:_SHOWN])
    more = ", ..." if len(names) > _SHOWN else ""
    return f"{what} {len(names)}: {shown}{more}"


def tied_names(model: torch.nn.Module, names: Collection[str]) -> set[str]:
    """Those of ``names`` whose tensor the model also has under a name that is not among them."""
    state = model.state_dict(keep_vars=True)
    places: dict[int, set[str]] = {}
    for name, tensor in state.items():
        if isinstance(tensor, torch.Tensor):
            places.setdefault(id(tensor), set()).add(name)
    return {n for same in places.values() for n in same & set(names) if same - set(names)}
