"""How an arm ended, in the words of the tables. Pure."""

from __future__ import annotations

from pilot.records import Outcome
from pilot.view import ArmView


def status_of(arm: ArmView) -> str:
    """How an arm ended: its outcome's status, ``lost`` or ``not run``."""
    if arm.outcome is not None:
        return arm.outcome.status
    if arm.absence:
        return str(arm.absence.get("status"))
    return "lost" if arm.num_attempts else "not run"


def reason_of(arm: ArmView) -> str:
    """Why an arm has no whole run, or an empty string."""
    if arm.outcome is not None:
        return arm.outcome.message
    return str(arm.absence.get("reason") or "")


def failure_text(arm: ArmView) -> str:
    """Why an arm has no result, on one line: how it ended, where, and why."""
    outcome = arm.outcome
    if outcome is None:
        return ": ".join(part for part in (status_of(arm), reason_of(arm)) if part)
    place = f" at step {outcome.step}" if outcome.step is not None else ""
    if outcome.status == Outcome.OUT_OF_MEMORY:
        return f"out of memory{place}"
    text = f"{outcome.error_type or 'an exception'}{place}"
    return f"{text}: {outcome.message}" if outcome.message else text


def rate_left_frac(arm: ArmView) -> float:
    """The learning rate of the last step as a share of the highest; 0 without steps."""
    peak = max((record.learning_rate for record in arm.steps), default=0.0)
    return arm.steps[-1].learning_rate / peak if peak > 0.0 else 0.0
