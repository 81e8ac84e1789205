"""Gate ``outcome``: the recipe's own code ran to the planned end."""

from __future__ import annotations

from pilot.checks.common import plural, rows_text
from pilot.checks.registry import FAIL, UNDETERMINED, CheckResult, register
from pilot.gates import Gates
from pilot.records import Finding, Outcome
from pilot.view import ArmView, PilotView

NAME = "outcome"
SOURCE = "an exception of the recipe is an outcome of the run, not a fault of pilot"
LIMIT = "no exception, memory suffices, an outcome exists"
_MAX_MESSAGE = 300


@register(
    name=NAME,
    gate="outcome",
    category="implementation",
    limit_source=SOURCE,
    cost="none",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Fail on an exception or on memory that ran out; undetermined when the arm left no outcome.

    ``stopped`` (non-finite) is the business of the gate ``finite``. Losses are not looked at.
    """
    outcome, last = arm.outcome, _last_step(arm)
    if outcome is None:
        return _result(_lost(arm, last))
    if outcome.status in (Outcome.EXCEPTION, Outcome.OUT_OF_MEMORY):
        return _result(_failed(outcome))
    if outcome.status == Outcome.STOPPED:
        text = f"stopped after step {outcome.last_step} because it is not finite: see finite"
    elif outcome.status == Outcome.COMPLETED:
        text = f"completed: {plural(len(arm.steps), 'step')}, last step {outcome.last_step}"
    elif outcome.status == Outcome.DECIDED:
        text = f"ended at step {outcome.last_step}: decided ({outcome.message})"
    elif outcome.status == Outcome.IDENTICAL:
        text = f"not run further than step {outcome.last_step}: {outcome.message}"
    else:
        return _result(_unknown(outcome))
    return CheckResult(measured=True, sentence=text, limit=LIMIT)


def _result(finding: Finding) -> CheckResult:
    return CheckResult(measured=True, findings=(finding,), sentence=finding.sentence, limit=LIMIT)


def _last_step(arm: ArmView) -> int:
    return arm.steps[-1].step if arm.steps else arm.job.start_step


def _failed(outcome: Outcome) -> Finding:
    memory = outcome.status == Outcome.OUT_OF_MEMORY
    step = outcome.step if outcome.step is not None else outcome.last_step
    rows = f", {rows_text(outcome.row_ids)}" if outcome.row_ids else ""
    peak = outcome.peak_memory_bytes
    size = f", peak memory {peak / 2**30:.3g} GiB" if peak is not None else ""
    what = "memory ran out" if memory else "the recipe raised"
    todo = "lower batch.micro_batch_size and raise batch.grad_accum_steps by the same factor"
    if not memory:
        alone = " on these rows alone" if outcome.row_ids else " alone"
        todo = f"repair the recipe: run {outcome.where or 'it'}{alone}"
    return Finding(
        check=NAME,
        severity=FAIL,
        category="memory" if memory else "implementation",
        sentence=f"{what} in {outcome.where or 'an unknown place'} at step {step}{rows}{size}: "
        f"{outcome.error_type or 'no error type'}: {_short(outcome.message)}",
        step=step,
        numbers={"row_ids": list(outcome.row_ids), "peak_memory_bytes": peak},
        limit=LIMIT,
        limit_source=SOURCE,
        obj=outcome.where,
        todo=todo,
    )


def _lost(arm: ArmView, last: int) -> Finding:
    lost = f"it was lost after step {last} ({plural(arm.num_attempts, 'attempt')})"
    if arm.absence.get("status") in ("interrupted", "not recorded"):
        lost = arm.absence["reason"]
    return Finding(
        check=NAME,
        severity=UNDETERMINED,
        category="undetermined",
        sentence=f"the arm left no outcome: {lost}",
        step=last,
        limit=LIMIT,
        limit_source=SOURCE,
        obj=arm.job.arm,
        todo="python -m pilot resume DIR",
    )


def _unknown(outcome: Outcome) -> Finding:
    return Finding(
        check=NAME,
        severity=UNDETERMINED,
        category="undetermined",
        sentence=f"the outcome {outcome.status!r} is not known to this version",
        step=outcome.last_step,
        limit=LIMIT,
        limit_source=SOURCE,
        todo="judge with the version of pilot that ran it",
    )


def _short(message: str) -> str:
    """The message on one line, cut; it is the user's text and is escaped where it is shown."""
    line = " ".join(message.split())
    return line if len(line) <= _MAX_MESSAGE else line[: _MAX_MESSAGE - 3] + "..."
