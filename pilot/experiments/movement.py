"""Which tensors moved since the start: exact comparison with the weights before step 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from pilot.records import Evidence

if TYPE_CHECKING:
    from pilot.engines.native import NativeEngine


# Above this, copies are of 65,536 evenly spaced elements per tensor instead of all of them.
_MAX_COPY_BYTES = 1_000_000_000
_SPARSE_ELEMENTS = 65_536


def start_weights(engine: NativeEngine) -> dict[str, torch.Tensor]:
    """All parameters before step 1, on the CPU, frozen ones too (large models: a part)."""
    sparse = _is_large(engine)
    return {n: _kept(p, sparse).clone() for n, p in engine.model.named_parameters()}


def _is_large(engine: NativeEngine) -> bool:
    sizes = (p.numel() * p.element_size() for p in engine.model.parameters())
    return sum(sizes) > _MAX_COPY_BYTES


def _kept(param: torch.Tensor, sparse: bool) -> torch.Tensor:
    flat = param.detach().reshape(-1)
    stride = max(1, flat.numel() // _SPARSE_ELEMENTS) if sparse else 1
    return flat[::stride].cpu()


def measure(engine: NativeEngine, before: Mapping[str, torch.Tensor]) -> Evidence:
    """Compare every parameter with ``before``.

    A trainable tensor is *still* when not one element changed. ``no_grad`` lists trainable tensors
    that no backward ever reached. ``update_over_half_ulp`` is the largest element of the update
    that fp32 arithmetic would make now, in units of half the spacing of the tensor's own dtype:
    below 1 the update is lost to rounding. NaN compares as changed.
    """
    assert engine.probe is not None
    norms = dict(zip(engine.probe.names, engine.probe.max_grad_norms.tolist(), strict=True))
    reached = dict(zip(engine.probe.names, engine.probe.had_grad, strict=True))
    still: list[dict[str, Any]] = []
    no_grad: list[dict[str, Any]] = []
    frozen_moved: list[dict[str, Any]] = []
    num_parameters = 0
    sparse = _is_large(engine)
    for name, param in engine.model.named_parameters():
        same = torch.equal(_kept(param, sparse), before[name])
        row = {"name": name, "num_elements": param.numel()}
        if not param.requires_grad:
            if not same:
                frozen_moved.append(row)
            continue
        num_parameters += param.numel()
        if not reached[name]:
            no_grad.append(row)
        if same:
            extra = {
                "max_grad_norm": norms[name],
                "dtype": str(param.dtype).removeprefix("torch."),
                "update_over_half_ulp": _lost_update(engine, param),
            }
            still.append({**row, **extra})
    return Evidence(
        experiment="movement",
        scale="full",
        step=engine.step,
        values={
            "num_tensors": len(norms),
            "num_parameters": num_parameters,
            "still": still,
            "no_grad": no_grad,
            "frozen_moved": frozen_moved,
        },
    )


def _lost_update(engine: NativeEngine, param: torch.nn.Parameter) -> float | None:
    """The optimizer's own update of this tensor in fp32, over half an ulp of its dtype."""
    grad = param.grad
    if grad is None or not param.dtype.is_floating_point:
        return None
    shadow = torch.nn.Parameter(param.detach().float())
    shadow.grad = grad.detach().float()
    options = {k: v for k, v in engine.optimizer.param_groups[0].items() if k != "params"}
    kind: Any = type(engine.optimizer)
    twin: torch.optim.Optimizer = kind([shadow], lr=options["lr"])
    twin.param_groups[0].update({k: v for k, v in options.items() if k != "foreach"})
    state = engine.optimizer.state.get(param, {})
    twin.state[shadow] = {
        k: v.detach().clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()
    }
    twin.step()
    update = (shadow.detach() - param.detach().float()).abs()
    eps = torch.finfo(param.dtype).eps
    half_ulp = (param.detach().float().abs() * eps / 2).clamp_min(torch.finfo(param.dtype).tiny)
    return float((update / half_ulp).max())
