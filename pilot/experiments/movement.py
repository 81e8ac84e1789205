"""Which tensors moved since the start: exact comparison with the weights before step 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from pilot.records import Evidence

if TYPE_CHECKING:
    from pilot.engines.base import Watched


# Above this, copies are of 65,536 evenly spaced elements per tensor instead of all of them.
_MAX_COPY_BYTES = 1_000_000_000
_SPARSE_ELEMENTS = 65_536


def start_weights(engine: Watched) -> dict[str, torch.Tensor]:
    """All parameters before step 1, on the CPU, frozen ones too (large models: a part)."""
    sparse = _is_large(engine)
    return {n: _kept(p, sparse).clone() for n, p in engine.model.named_parameters()}


def _is_large(engine: Watched) -> bool:
    sizes = (p.numel() * p.element_size() for p in engine.model.parameters())
    return sum(sizes) > _MAX_COPY_BYTES


def _kept(param: torch.Tensor, sparse: bool) -> torch.Tensor:
    flat = param.detach().reshape(-1)
    stride = max(1, flat.numel() // _SPARSE_ELEMENTS) if sparse else 1
    return flat[::stride].cpu()


def measure(engine: Watched, before: Mapping[str, torch.Tensor]) -> Evidence:
    """Compare every parameter with ``before``; only reads.

    A trainable tensor is *still* when not one element changed (NaN compares as changed).
    ``no_grad`` lists trainable tensors that no backward ever reached, ``zero_grad`` those whose
    gradient was exactly 0 at every step, ``non_finite`` parameters with a NaN or inf anywhere.
    ``update_over_half_ulp`` is the largest element of the update that exact arithmetic would make
    now, over half the spacing of the tensor's own dtype: below 1 the update is lost to rounding.
    """
    assert engine.probe is not None
    probe = engine.probe
    norms = dict(zip(probe.names, probe.max_grad_norms.tolist(), strict=True))
    reached = dict(zip(probe.names, probe.had_grad, strict=True))
    found: dict[str, list[dict[str, Any]]] = {
        key: [] for key in ("still", "no_grad", "zero_grad", "frozen_moved", "non_finite")
    }
    num_parameters, sparse = 0, _is_large(engine)
    for name, param in engine.model.named_parameters():
        same = torch.equal(_kept(param, sparse), before[name])
        row = {"name": name, "num_elements": param.numel()}
        if not bool(torch.isfinite(param.detach()).all()):
            found["non_finite"].append(row)
        if not param.requires_grad:
            if not same:
                found["frozen_moved"].append(row)
            continue
        num_parameters += param.numel()
        if not reached[name]:
            found["no_grad"].append(row)
        elif norms[name] == 0.0:
            found["zero_grad"].append(row)
        if same:
            found["still"].append({**row, **_still_facts(engine, param, norms[name])})
    values = {"num_tensors": len(norms), "num_parameters": num_parameters, **found}
    return Evidence(experiment="movement", scale="full", step=engine.step, values=values)


def _still_facts(
    engine: Watched, param: torch.nn.Parameter, max_grad_norm: float
) -> dict[str, Any]:
    try:
        lost = _lost_update(engine, param)
    except Exception:  # an optimizer that needs a closure or arguments of its own
        lost = None
    return {
        "max_grad_norm": max_grad_norm,
        "dtype": str(param.dtype).removeprefix("torch."),
        "update_over_half_ulp": lost,
    }


def _lost_update(engine: Watched, param: torch.nn.Parameter) -> float | None:
    """The optimizer's own update of a copy of this tensor in fp64, over half an ulp."""
    grad = param.grad
    if grad is None or not param.dtype.is_floating_point:
        return None
    start = param.detach().double().clone()
    shadow = torch.nn.Parameter(start.clone())
    shadow.grad = grad.detach().double()
    groups = engine.optimizer.param_groups
    own = next((g for g in groups if any(p is param for p in g["params"])), groups[0])
    options = {k: v for k, v in own.items() if k != "params"}
    kind: Any = type(engine.optimizer)
    twin: torch.optim.Optimizer = kind([shadow], lr=options["lr"])
    twin.param_groups[0].update({k: v for k, v in options.items() if k != "foreach"})
    state = engine.optimizer.state.get(param, {})
    twin.state[shadow] = {
        k: v.detach().clone().to(shadow.dtype if v.dim() else v.dtype)
        if isinstance(v, torch.Tensor)
        else v
        for k, v in state.items()
    }
    twin.step()
    update = (shadow.detach() - start).abs()
    here = param.detach()
    spacing = torch.nextafter(here, torch.full_like(here, float("inf"))) - here
    return float((update / (spacing.double().abs() / 2)).max())
