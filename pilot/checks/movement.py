"""Gate ``movement``: what should move moves, what is frozen does not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pilot.checks.common import num, plural
from pilot.checks.registry import FAIL, NOTE, WARN, CheckResult, not_measured, register
from pilot.gates import Gates
from pilot.records import Finding
from pilot.view import ArmView, PilotView

NAME = "movement"
SOURCE = "20 of 144 public fault reports; pure-bf16 norm weights never move and are harmless"
_SHOWN = 5


@register(
    name=NAME,
    gate="movement",
    category="implementation",
    limit_source=SOURCE,
    cost="none: two copies of sampled weights",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Judge the tensors that did not change over the pilot, and the frozen ones that did.

    Fails when a frozen tensor moved, when trainable tensors that got a gradient and stood still
    hold more than ``max_still_frac`` of the parameters, or when one of them had an fp32 update
    above half an ulp of its dtype. Smaller ones warn, and so does a trainable tensor that never got
    a gradient object. A tensor whose gradient was always zero is so by design: a note. A gradient
    norm that is NaN or unknown counts as a gradient. Without evidence nothing was measured.
    """
    limit = (
        f"at most {num(100 * gates.movement.max_still_frac)} % of the parameters stand still, "
        "no update above half an ulp is lost, frozen tensors do not move"
    )
    evidence = arm.experiment("movement")
    if evidence is None:
        return not_measured("no evidence: measured at the end of the baseline's peak", limit)
    values = evidence.values
    total = int(values.get("num_parameters") or 0)
    if total <= 0:
        return not_measured("the evidence has no trainable parameter", limit)
    still = [t for t in values.get("still") or () if not _by_design(t)]
    no_grad = {t["name"] for t in values.get("no_grad") or ()}
    design = [t for t in values.get("still") or () if _by_design(t) and t["name"] not in no_grad]
    found = [
        *_frozen(values.get("frozen_moved") or (), evidence.step, limit),
        *_still(still, total, gates.movement.max_still_frac, evidence.step, limit),
        *_no_grad(values.get("no_grad") or (), evidence.step, limit),
        *_design(design, evidence.step, limit),
    ]
    count = int(values.get("num_tensors") or 0)
    fine = f"all {plural(count, 'trainable tensor')} that got a gradient moved"
    worst = next((f for f in found if f.severity in (FAIL, WARN)), None)
    return CheckResult(
        measured=True,
        findings=tuple(found),
        sentence=worst.sentence if worst else fine,
        limit=limit,
        numbers={"num_tensors": count, "num_still": len(still)},
    )


def _by_design(tensor: Mapping[str, Any]) -> bool:
    return tensor.get("max_grad_norm") == 0.0


def _names(tensors: Sequence[Mapping[str, Any]]) -> str:
    """The largest tensors first, at most five names."""
    ordered = sorted(tensors, key=lambda t: (-int(t["num_elements"]), str(t["name"])))
    more = len(ordered) - _SHOWN
    text = ", ".join(str(t["name"]) for t in ordered[:_SHOWN])
    return text + (f" and {more} more" if more > 0 else "")


def _elements(tensors: Sequence[Mapping[str, Any]]) -> int:
    return sum(int(t["num_elements"]) for t in tensors)


def _finding(
    severity: str,
    category: str,
    sentence: str,
    tensors: Sequence[Mapping[str, Any]],
    step: int,
    limit: str,
    todo: str,
) -> Finding:
    return Finding(
        check=NAME,
        severity=severity,
        category=category,
        sentence=sentence,
        step=step,
        numbers={"num_tensors": len(tensors), "num_elements": _elements(tensors)},
        limit=limit,
        limit_source=SOURCE,
        obj=_names(tensors),
        todo=todo,
    )


def _frozen(tensors: Sequence[Mapping[str, Any]], step: int, limit: str) -> Iterator[Finding]:
    if tensors:
        text = f"{plural(len(tensors), 'frozen tensor')} moved: {_names(tensors)}"
        todo = "find who writes to them: a tied weight, or an optimizer built before freezing"
        yield _finding(FAIL, "implementation", text, tensors, step, limit, todo)


def _still(
    tensors: Sequence[Mapping[str, Any]], total: int, max_frac: float, step: int, limit: str
) -> Iterator[Finding]:
    if not tensors:
        return
    lost = [t for t in tensors if _lost_update(t)]
    share = _elements(tensors) / total
    text = f"{num(100 * share)} % of the parameters got a gradient and never moved: "
    if lost:
        words = f"{plural(len(lost), 'tensor')} never moved, though the update exceeds half an ulp"
        todo = "is the tensor in the optimizer? is the loss scaler unscaled before clipping?"
        yield _finding(FAIL, "implementation", f"{words}: {_names(lost)}", lost, step, limit, todo)
    if share > max_frac:
        rounded = all(_rounded_away(t) for t in tensors)
        category = "precision" if rounded else "implementation"
        todo = (
            "keep fp32 master weights: the updates are rounded away"
            if rounded
            else ("compare the optimizer's parameters with the model's trainable ones")
        )
        yield _finding(FAIL, category, text + _names(tensors), tensors, step, limit, todo)
    elif not lost:
        todo = "harmless for a few norm weights in pure bf16; otherwise look at the optimizer"
        yield _finding(WARN, "precision", text + _names(tensors), tensors, step, limit, todo)


def _lost_update(tensor: Mapping[str, Any]) -> bool:
    ratio = tensor.get("update_over_half_ulp")
    return ratio is not None and float(ratio) > 1.0


def _rounded_away(tensor: Mapping[str, Any]) -> bool:
    ratio = tensor.get("update_over_half_ulp")
    return ratio is not None and math.isfinite(float(ratio)) and float(ratio) <= 1.0


def _no_grad(tensors: Sequence[Mapping[str, Any]], step: int, limit: str) -> Iterator[Finding]:
    if tensors:
        text = f"{plural(len(tensors), 'trainable tensor')} never got a gradient: {_names(tensors)}"
        todo = "unused in the forward pass? freeze it, or connect it"
        yield _finding(WARN, "implementation", text, tensors, step, limit, todo)


def _design(tensors: Sequence[Mapping[str, Any]], step: int, limit: str) -> Iterator[Finding]:
    if tensors:
        text = f"{plural(len(tensors), 'tensor')} had a zero gradient throughout, as by design: "
        yield _finding(NOTE, "implementation", text + _names(tensors), tensors, step, limit, "")
