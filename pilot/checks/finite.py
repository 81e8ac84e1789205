"""Gate ``finite``: every loss, gradient and weight is a number, outside the scaler's allowance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pilot.checks.common import (
    last_validations,
    num,
    place_text,
    plural,
    rows_text,
    tensors_text,
)
from pilot.checks.registry import FAIL, CheckResult, not_measured, register
from pilot.gates import FiniteGate, Gates
from pilot.records import Finding, Outcome, StepRecord
from pilot.view import ArmView, PilotView

NAME = "finite"
SOURCE = "a non-finite value never recovers; torch.amp.GradScaler halves its scale to find a fit"


@register(
    name=NAME,
    gate="finite",
    category="undetermined",
    limit_source=SOURCE,
    cost="none: the probe measures every step",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Fail on the first non-finite loss, gradient or weight, in any step or validation.

    Parameters with NaN or inf at the end of the peak (evidence ``movement``) are named; evidence
    without that list says nothing about them.

    Under a loss scaler (fp16) a *skipped* step with a non-finite gradient is allowed while the
    scale is still falling (before the first successful step); after it at most
    ``max_skipped_frac`` of the steps, rounded up, and never more than ``max_skipped_in_a_row`` in
    a row. A scale below 1, or no successful step at all, fails. NaN and inf are what is looked for;
    without a single record nothing was measured; constant input passes.
    """
    steps = (*arm.steps, *arm.cooldown, *arm.extension)
    limit = _limit(gates.finite)
    if not steps and not arm.validations:
        return not_measured("no step and no validation was recorded", limit)
    found = [*_step_findings(steps), *_validation_findings(arm), *_weights(arm)]
    found.extend(_scaler_findings(steps, gates.finite))
    if not found and arm.outcome and arm.outcome.status == Outcome.STOPPED:
        found.append(_stopped(arm.outcome))
    found.sort(key=lambda f: math.inf if f.step is None else f.step)
    fine = f"loss, gradient and weights are finite at {plural(len(steps), 'step')}"
    return CheckResult(
        measured=True,
        findings=tuple(found),
        sentence=found[0].sentence if found else fine,
        limit=limit,
        numbers={"num_steps": len(steps), "first_step": found[0].step if found else None},
    )


def _limit(gate: FiniteGate) -> str:
    return (
        f"no non-finite value; fp16: {num(100 * gate.max_skipped_frac)} % skipped steps, "
        f"{gate.max_skipped_in_a_row} in a row, scale at least 1"
    )


def _scaler_skip(record: StepRecord) -> bool:
    return record.step_skipped and record.loss_scale is not None


def _bad(record: StepRecord) -> list[str]:
    """The quantities of a step that are not finite, outside the scaler's allowance."""
    bad = []
    if not (record.finite_loss and math.isfinite(record.loss)):
        bad.append("loss")
    grads = record.finite_grads and math.isfinite(record.grad_norm)
    if not grads and not _scaler_skip(record):
        bad.append("gradient")
    if not (record.finite_params and math.isfinite(record.param_norm)):
        bad.append("weights")
    return bad


def _step_findings(steps: Sequence[StepRecord]) -> Iterator[Finding]:
    """One finding for the first non-finite step; what follows it is a consequence."""
    bad = [(record, _bad(record)) for record in steps]
    bad = [(record, names) for record, names in bad if names]
    if not bad:
        return
    record, names = bad[0]
    what, verb = " and ".join(names), "is" if names in (["loss"], ["gradient"]) else "are"
    yield Finding(
        check=NAME,
        severity=FAIL,
        category="undetermined" if record.num_supervised_tokens else "data",
        sentence=f"{what} {verb} not finite at step {record.step} "
        f"(learning rate {num(record.learning_rate)}, {rows_text(record.row_ids)}): "
        f"{_hint(record, names)}",
        step=record.step,
        numbers={
            "loss": record.loss,
            "grad_norm": record.grad_norm,
            "param_norm": record.param_norm,
            "num_non_finite_steps": len(bad),
            "row_ids": list(record.row_ids),
        },
        limit="no non-finite value",
        limit_source=SOURCE,
        obj=rows_text(record.row_ids),
        todo=f"look at {rows_text(record.row_ids)} and at the steps before step {record.step}",
    )


def _hint(record: StepRecord, names: list[str]) -> str:
    """Is the model damaged or only the number? (the first look-alike to separate)."""
    if record.num_supervised_tokens == 0:
        return "the step has no supervised token: the labels, not the model"
    if names == ["loss"]:
        return "gradient and weights are finite: look at labels and denominator first"
    if names == ["weights"]:
        return "loss and gradient are finite: look at the optimizer first"
    return (
        "forward and loss were finite" if "loss" not in names else "the loss was not finite already"
    )


def _validation_findings(arm: ArmView) -> Iterator[Finding]:
    """One finding for the first validation that is not finite (any set)."""
    for record in last_validations(arm).values():
        bad = [i for i, value in enumerate(record.loss_sums) if not math.isfinite(value)]
        if math.isfinite(record.loss) and not bad:
            continue
        empty = sum(record.token_counts) == 0
        cause = "no example has a supervised token" if empty else f"examples: {rows_text(bad)}"
        yield Finding(
            check=NAME,
            severity=FAIL,
            category="data" if empty else "undetermined",
            sentence=f"validation loss of {record.name!r} is not finite {place_text(record.at)} "
            f"(after step {record.step}); {cause}",
            step=record.step,
            numbers={"loss": record.loss, "num_non_finite_examples": len(bad)},
            limit="no non-finite value",
            limit_source=SOURCE,
            obj=record.name,
            todo=f"evaluate these examples of {record.name!r} alone, in fp32",
        )
        return


def _weights(arm: ArmView) -> Iterator[Finding]:
    """One finding for parameters that are not finite, exact: no record of a step needs to show."""
    evidence = arm.experiment("movement")
    tensors = (evidence.values.get("non_finite") or ()) if evidence else ()
    if evidence is None or not tensors:
        return
    yield Finding(
        check=NAME,
        severity=FAIL,
        category="undetermined",
        sentence=f"{plural(len(tensors), 'tensor')} with NaN or inf after step {evidence.step}: "
        f"{tensors_text(tensors)}",
        step=evidence.step,
        numbers={"num_tensors": len(tensors)},
        limit="no non-finite value",
        limit_source=SOURCE,
        obj=tensors_text(tensors),
        todo="look at these tensors at the start, and at the first step that changes them",
    )


def _scaler_findings(steps: Sequence[StepRecord], gate: FiniteGate) -> Iterator[Finding]:
    unscaled = [r for r in steps if r.step_skipped and r.loss_scale is None]
    if unscaled:
        yield _scaler(
            unscaled[0], "the optimizer step was skipped without a loss scaler", 0, "none"
        )
    scaled = [r for r in steps if r.loss_scale is not None]
    if not scaled:
        return
    low = [r for r in scaled if not (r.loss_scale is not None and r.loss_scale >= 1.0)]
    if low:
        yield _scaler(low[0], f"the loss scale fell to {low[0].loss_scale:g}", 1, "at least 1")
    first = next((i for i, r in enumerate(scaled) if not r.step_skipped), None)
    if first is None:
        yield _scaler(scaled[-1], "no optimizer step ever succeeded", len(scaled), "one success")
        return
    after = scaled[first:]
    skipped = [r for r in after if r.step_skipped]
    allowed = math.ceil(gate.max_skipped_frac * len(after) - 1e-9)
    if len(skipped) > allowed:
        text = f"{len(skipped)} of {len(after)} steps were skipped after the first success"
        yield _scaler(skipped[allowed], text, len(skipped), f"at most {allowed}")
    run = 0
    for record in after:
        run = run + 1 if record.step_skipped else 0
        if run > gate.max_skipped_in_a_row:
            text = f"{run} steps in a row were skipped after the first success"
            yield _scaler(record, text, run, f"at most {gate.max_skipped_in_a_row} in a row")
            return


def _scaler(record: StepRecord, what: str, count: int, limit: str) -> Finding:
    return Finding(
        check=NAME,
        severity=FAIL,
        category="undetermined",
        sentence=f"{what} (step {record.step}, limit: {limit})",
        step=record.step,
        numbers={"num_skipped_steps": count, "loss_scale": record.loss_scale},
        limit=limit,
        limit_source=SOURCE,
        obj="loss scaler",
        todo="compare with precision=bf16 or precision=fp32: the gradients overflow in fp16",
    )


def _stopped(outcome: Outcome) -> Finding:
    step = outcome.step if outcome.step is not None else outcome.last_step
    return Finding(
        check=NAME,
        severity=FAIL,
        category="undetermined",
        sentence=f"the run was stopped as non-finite at step {step}; "
        f"no record shows the quantity{': ' + outcome.message if outcome.message else ''}",
        step=step,
        limit="no non-finite value",
        limit_source=SOURCE,
        obj=rows_text(outcome.row_ids) if outcome.row_ids else "",
        todo="read the arm's log",
    )
