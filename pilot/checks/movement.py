"""Gate ``movement``: what should move moves, what is frozen does not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pilot.checks.common import num, plural, tensors_text
from pilot.checks.registry import FAIL, NOTE, WARN, CheckResult, not_measured, register
from pilot.gates import Gates
from pilot.records import Finding
from pilot.view import ArmView, PilotView

NAME = "movement"
SOURCE = "20 of 144 public fault reports; pure-bf16 norm weights never move and are harmless"


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
    hold more than ``max_still_frac`` of the parameters, when one of them had an update above half
    an ulp of its dtype, or when trainable tensors that never got a gradient object hold more than
    ``max_still_frac``; smaller ones warn. Tensors whose gradient was exactly 0 at every step warn
    above ``max_still_frac``, whether or not weight decay moved them, and are a note below it. A
    gradient norm that is NaN or unknown counts as a gradient; non-finite weights are judged by
    ``finite``. Without evidence nothing was measured.
    """
    limit = (
        f"at most {num(100 * gates.movement.max_still_frac)} % of the parameters stand still or "
        "get no gradient, no update above half an ulp is lost, frozen tensors do not move"
    )
    evidence = arm.experiment("movement")
    if evidence is None:
        return not_measured("no evidence: measured at the end of the baseline's peak", limit)
    values = evidence.values
    if (total := int(values.get("num_parameters") or 0)) <= 0:
        return not_measured("the evidence has no trainable parameter", limit)
    still = [t for t in values.get("still") or () if not _zero(t)]
    most, step, no_grad = gates.movement.max_still_frac, evidence.step, values.get("no_grad") or ()
    found = [
        *_frozen(values.get("frozen_moved") or (), step, limit),
        *_still(still, total, most, step, limit),
        *_no_grad(no_grad, total, most, step, limit),
        *_zero_grad(_zero_tensors(values), total, most, step, limit),
    ]
    found.sort(key=lambda f: f.severity != FAIL)
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


def _zero(tensor: Mapping[str, Any]) -> bool:
    return tensor.get("max_grad_norm") == 0.0


def _zero_tensors(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Tensors with a gradient that was always 0; older evidence has only those that stood still."""
    known = {t["name"] for t in values.get("no_grad") or ()}
    found = {}
    for tensor in (*(values.get("zero_grad") or ()), *filter(_zero, values.get("still") or ())):
        if tensor["name"] not in known:
            found[tensor["name"]] = tensor
    return list(found.values())


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
        obj=tensors_text(tensors),
        todo=todo,
    )


def _frozen(tensors: Sequence[Mapping[str, Any]], step: int, limit: str) -> Iterator[Finding]:
    if tensors:
        text = f"{plural(len(tensors), 'frozen tensor')} moved: {tensors_text(tensors)}"
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
        yield _finding(
            FAIL, "implementation", f"{words}: {tensors_text(lost)}", lost, step, limit, todo
        )
    if share > max_frac:
        rounded = all(_rounded_away(t) for t in tensors)
        category = "precision" if rounded else "implementation"
        todo = (
            "keep fp32 master weights: the updates are rounded away"
            if rounded
            else ("compare the optimizer's parameters with the model's trainable ones")
        )
        yield _finding(FAIL, category, text + tensors_text(tensors), tensors, step, limit, todo)
    elif not lost:
        todo = "harmless for a few norm weights in pure bf16; otherwise look at the optimizer"
        yield _finding(WARN, "precision", text + tensors_text(tensors), tensors, step, limit, todo)


def _lost_update(tensor: Mapping[str, Any]) -> bool:
    ratio = tensor.get("update_over_half_ulp")
    return ratio is not None and float(ratio) > 1.0


def _rounded_away(tensor: Mapping[str, Any]) -> bool:
    ratio = tensor.get("update_over_half_ulp")
    return ratio is not None and math.isfinite(float(ratio)) and float(ratio) <= 1.0


def _no_grad(
    tensors: Sequence[Mapping[str, Any]], total: int, max_frac: float, step: int, limit: str
) -> Iterator[Finding]:
    if tensors:
        share = _elements(tensors) / total
        text = (
            f"{plural(len(tensors), 'trainable tensor')} ({num(100 * share)} % of the parameters) "
            f"never got a gradient: {tensors_text(tensors)}"
        )
        todo = "is the tensor part of the loss? frozen on purpose: requires_grad=False"
        severity = FAIL if share > max_frac else WARN
        yield _finding(severity, "implementation", text, tensors, step, limit, todo)


def _zero_grad(
    tensors: Sequence[Mapping[str, Any]], total: int, max_frac: float, step: int, limit: str
) -> Iterator[Finding]:
    """Only a warning: a gate that starts at zero has such tensors, and so has a detached branch."""
    if tensors:
        share = _elements(tensors) / total
        text = (
            f"{plural(len(tensors), 'trainable tensor')} ({num(100 * share)} % of the parameters) "
            f"never got a gradient other than 0: {tensors_text(tensors)}"
        )
        large = share > max_frac
        todo = "multiplied by zero, masked or saturated? compare with the paper or the code"
        severity = WARN if large else NOTE
        yield _finding(
            severity, "implementation", text, tensors, step, limit, todo if large else ""
        )
