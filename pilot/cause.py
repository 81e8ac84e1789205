"""Why a pilot failed, as far as it is known, and which single change was shown to help.

A symptom is not a cause: without a replay a non-finite loss or poor progress has the cause
``undetermined``, with what is known. A lower rate that helps proves a remedy, not a cause.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pilot.arms.specs import ABSENT, ARM, CLIP, SEED, node_at
from pilot.checks.common import change_text, no_measure
from pilot.checks.registry import FAIL, UNDETERMINED, WARN, all_checks, run_check
from pilot.compare.paired import Difference, paired_difference
from pilot.gates import Gates
from pilot.plan import BEFORE
from pilot.records import Outcome
from pilot.verdict import NOT_MEASURED, PASS, WAIVED, GateResult, gate_results
from pilot.view import ArmView, PilotView

PROPOSED = "proposed"
# Failures that another way of training may cure. Code that raises, illegal rows and tensors that
# stand still are to be repaired, whatever an arm shows.
_TRAINING = {"finite", "events", "validation", "progress"}


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Category (or ``undetermined``), one sentence, the evidence for it, and what else is known.

    ``no_cures`` are the arms that fail what the baseline fails: these changes do not help.
    """

    category: str
    sentence: str
    evidence: tuple[str, ...]
    known: tuple[str, ...]
    no_cures: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """One config override. ``status``: ``proven by arm X`` or ``proposed``.

    ``judged`` are the gates that were judged on the arm and passed, ``not_judged`` those that the
    baseline failed or that matter and could not be judged on the arm.
    """

    override: str
    arm: str
    status: str
    proven: bool
    sentence: str
    judged: tuple[str, ...]
    not_judged: tuple[str, ...]


def find_cause(view: PilotView, gates: Gates, blocking: Sequence[GateResult]) -> Cause | None:
    """The cause of a NO-GO from the failed gates, those that explain most first; else None."""
    failed = [f for gate in blocking for f in gate.findings if f.severity == FAIL]
    if not failed:
        return None
    first = failed[0]
    sentence = first.sentence
    if first.category == "undetermined":
        sentence = f"not replayed, so the cause is open: {first.sentence}"
    names = [gate.name for gate in blocking if gate.status == FAIL]
    return Cause(
        category=first.category,
        sentence=sentence,
        evidence=tuple(f.sentence for f in failed),
        known=tuple(_known(view, gates)),
        no_cures=tuple(_no_cures(view, gates, names)),
    )


def _no_cures(view: PilotView, gates: Gates, failed: Sequence[str]) -> list[str]:
    """One line for each arm that fails what the baseline fails."""
    lines = []
    for arm in _arms(view):
        on_arm = {gate.name: gate.judged for gate in judge_arm(view, gates, arm)}
        same = [name for name in failed if on_arm.get(name) == FAIL]
        if same and arm.outcome is not None and arm.outcome.status != Outcome.IDENTICAL:
            lines.append(
                f"arm {arm.job.title} ({_override(view, arm)}) fails {', '.join(same)} too"
            )
    return lines


def _known(view: PilotView, gates: Gates) -> list[str]:
    """What the arms add, without making a cause of it."""
    facts, helped = [], False
    for arm in _arms(view):
        title = arm.job.title
        if arm.outcome is None or arm.outcome.status == Outcome.IDENTICAL:
            continue
        if any(f.severity == FAIL for f in run_check("finite", view, gates, arm).findings):
            facts.append(f"arm {title} ({_override(view, arm)}) is not finite either")
            continue
        gain = _gain(view, arm)
        first = view.plan.start_step + 1
        gained = f", validation {change_text(gain)} against before step {first}" if gain else ""
        stayed = "stayed finite to the end" if _complete(arm) else "was finite while it ran"
        facts.append(f"arm {title} ({_override(view, arm)}) {stayed}{gained}")
        better = gain is not None and gain.better(gates.progress.num_se)
        helped = helped or (better and _complete(arm))
    if helped:
        facts.append("a change that helps is a remedy, it proves no cause: nothing was replayed")
    return facts


def find_remedy(view: PilotView, gates: Gates, blocking: Sequence[GateResult]) -> Remedy | None:
    """The arm that passes what the baseline failed, proven before proposed; else None.

    Of several the one with the lowest final validation loss, then the first of the plan.

    Only failures of training itself have a remedy among the arms (an exception has to be repaired),
    and an arm is no remedy when any gate fails on it or when its validation did not improve by
    ``gates.progress.num_se`` standard errors. It is *proven* when every failed gate was judged on
    the arm and passed; never for ``finite``: that a NaN did not occur in one other run may have
    nothing to do with the change, only a replay tells.
    """
    failed = [gate.name for gate in blocking if gate.status == FAIL]
    if not failed or not set(failed) <= _TRAINING:
        return None
    found = [r for r in (_remedy(view, gates, arm, failed) for arm in _arms(view)) if r]
    return min(found, key=lambda r: (not r.proven, _final_loss(view, r.arm)), default=None)


def _final_loss(view: PilotView, name: str) -> float:
    final = view.arms[name].validation(view.plan.final_validation)
    return final.loss if final is not None and math.isfinite(final.loss) else math.inf


def judge_arm(view: PilotView, gates: Gates, arm: ArmView) -> tuple[GateResult, ...]:
    """All gates, judged on an arm as they are on the baseline."""
    results = {c.name: run_check(c.name, view, gates, arm) for c in all_checks()}
    return gate_results(gates, results)


def _remedy(view: PilotView, gates: Gates, arm: ArmView, failed: Sequence[str]) -> Remedy | None:
    on_arm = {gate.name: gate for gate in judge_arm(view, gates, arm) if gate.checks}
    if arm.outcome is None or any(g.status == FAIL for g in on_arm.values()):
        return None
    gain = _gain(view, arm)
    if gain is None or not gain.better(gates.progress.num_se):
        return None
    judged = tuple(n for n, g in on_arm.items() if g.judged in (PASS, WARN))
    unclear = (UNDETERMINED, NOT_MEASURED)
    open_ones = tuple(
        n
        for n, g in on_arm.items()
        if g.judged in unclear and g.status != WAIVED and (n in failed or g.need == "required")
    )
    # Without a still lower arm, progress cannot be judged on the arm that served as reference; that
    # it improved is all that is known, and enough to propose it.
    if not set(judged) & set(failed) and "progress" not in failed:
        return None
    proven = all(name in judged for name in failed) and "finite" not in failed
    if not proven and arm.job.variable == CLIP and arm.job.value == "null":
        return None  # to take the fuse out needs proof
    title = arm.job.title
    status = f"proven by arm {title}" if proven else PROPOSED
    absent = f"the non-finite value did not occur in arm {title}; " if "finite" in failed else ""
    passes = f"arm {title} passes {', '.join(judged) or 'nothing'}"
    left = f"; not judged on it: {', '.join(open_ones)}" if open_ones else ""
    return Remedy(
        override=_override(view, arm),
        arm=arm.job.arm,
        status=status,
        proven=proven,
        sentence=f"{absent}{passes}; its validation changed by {change_text(gain)}{left}",
        judged=judged,
        not_judged=open_ones,
    )


def _arms(view: PilotView) -> list[ArmView]:
    """The arms with a variable of training, in the plan's order."""
    arms = sorted(view.arms.values(), key=lambda arm: (arm.job.order, arm.job.arm))
    return [arm for arm in arms if arm.job.role == ARM and arm.job.variable not in ("", SEED)]


def _override(view: PilotView, arm: ArmView) -> str:
    """The arm's change as a word of the command line; a key that is new there needs its plus."""
    plus = "+" if node_at(view.config, arm.job.variable) is ABSENT else ""
    return f"{plus}{arm.job.variable}={arm.job.value}"


def _complete(arm: ArmView) -> bool:
    return arm.outcome is not None and arm.outcome.status == Outcome.COMPLETED


def _gain(view: PilotView, arm: ArmView) -> Difference | None:
    """The arm's final validation against before step 1 (its own, or the baseline's).

    None where it is missing, not comparable, or no measure of quality.
    """
    if no_measure(view):
        return None
    baseline = view.baseline
    before = arm.validation(BEFORE) or (baseline.validation(BEFORE) if baseline else None)
    final = arm.validation(view.plan.final_validation)
    if before is None or final is None:
        return None
    try:
        return paired_difference(before, final)
    except ValueError:
        return None
