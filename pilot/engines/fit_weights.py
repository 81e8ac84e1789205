"""Puts saved weights into a model: under its own names, each tensor in its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pilot.engines.weight_files import listed, tied_names
from pilot.user_checkpoint import wrong


def load_weights(
    model: torch.nn.Module, path: Path, weights: Mapping[str, Any], is_adapter: bool
) -> list[str]:
    """Put the weights into the model; every tensor must have its place.

    Raises:
        ConfigError: with what is missing, unknown or of another shape.
    """
    if is_adapter:
        weights = _adapter_names(model, path, weights)
    state = model.state_dict()
    named = _renamed({k: v for k, v in weights.items() if isinstance(v, torch.Tensor)}, set(state))
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    lost = {name for name in state if name not in named}
    lost -= tied_names(model, lost) | frozen
    extra = set(named) - set(state)
    shapes = {
        f"{n} {list(named[n].shape)} and not {list(t.shape)}"
        for n, t in state.items()
        if n in named and named[n].shape != t.shape
    }
    wrongs = (("missing", lost), ("unknown to it", extra), ("of another shape", shapes))
    lines = [listed(what, names) for what, names in wrongs if names]
    if lines:
        rule = f"its weights do not fit the model: {'; '.join(lines)}"
        remedy = "build the model that was saved, or define load_checkpoint() in the recipe"
        raise wrong(path, rule, remedy)
    model.load_state_dict(named, strict=False)
    rebuilt = frozen - set(named)
    notes = [f"frozen weights are those that the recipe builds: {len(rebuilt)}"] if rebuilt else []
    kinds = sorted({str(t.dtype)[6:] for t in named.values() if t.is_floating_point()})
    here = sorted({str(t.dtype)[6:] for t in state.values() if t.is_floating_point()})
    if kinds != here:
        notes.append(f"weights saved in {', '.join(kinds)} are trained in {', '.join(here)}")
    return notes


def _renamed(weights: dict[str, torch.Tensor], known: set[str]) -> dict[str, torch.Tensor]:
    """Under the model's own names: without what wrappers (DDP, ``torch.compile``) put before them.

    A name that fits as it is stays; ``model.`` goes only where names fit better without it.
    """
    places = {_bare(name): name for name in known}

    def placed(inner: str) -> dict[str, torch.Tensor]:
        found = {}
        for name, tensor in weights.items():
            bare = _bare(_bare(name).removeprefix(inner))
            found[places.get(bare, name)] = tensor
        return found

    tries = [weights, placed(""), placed("model.")]
    return max(tries, key=lambda one: len(known & set(one)))  # the first of equals


def _bare(name: str) -> str:
    name = name.replace("_orig_mod.", "")
    while name.startswith("module."):
        name = name.removeprefix("module.")
    return name


def _adapter_names(
    model: torch.nn.Module, path: Path, weights: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The tensors of an adapter's file under the names that the model has for them."""
    if not hasattr(model, "peft_config"):
        rule = "holds an adapter alone; the recipe's model has none"
        raise wrong(path, rule, "build the model with that adapter (recipe.lora)")
    name = next(iter(model.peft_config))  # type: ignore[arg-type]
    found = {}
    for key, tensor in weights.items():
        head, dot, tail = key.rpartition(".")
        parameter = f"{head}.{name}{dot}{tail}"
        in_model = parameter in model.state_dict()
        found[parameter if in_model else key] = tensor
    return found
