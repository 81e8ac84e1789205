"""Cause and remedy: honest about what was not judged."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from pilot.cause import Cause, Remedy, find_cause, find_remedy
from pilot.checks.registry import all_checks, run_check
from pilot.gates import Gates
from pilot.records import Outcome
from pilot.verdict import blocking, gate_results
from pilot.view import PilotView
from tests.factories import LOWER, build_view, make_audit, make_gates, make_movement, with_baseline


def nan_from(step: int) -> dict[str, Any]:
    def edit(record: Any) -> Any:
        return dataclasses.replace(record, loss=math.nan) if record.step >= step else record

    return {"edit": edit, "last_step": step + 1}


def explain(view: PilotView, gates: Gates | None = None) -> tuple[Cause | None, Remedy | None]:
    gates = gates or make_gates()
    results = {info.name: run_check(info.name, view, gates) for info in all_checks()}
    blockers = blocking(gates, gate_results(gates, results))
    return find_cause(view, gates, blockers), find_remedy(view, gates, blockers)


def test_go_and_inconclusive_have_neither() -> None:
    assert explain(build_view()) == (None, None)
    assert explain(build_view(baseline={"outcome": None, "last_step": 20})) == (None, None)


def test_non_finite_without_replay_stays_undetermined() -> None:
    cause, _ = explain(build_view(baseline=nan_from(20)))
    assert cause is not None and cause.category == "undetermined"
    assert cause.sentence.startswith("not replayed, so the cause is open: loss is not finite at")
    assert cause.known[0] == (
        "arm lr x1/3 (optim.learning_rate=0.001) stayed finite to the end, "
        "validation -0.9 (SE 0.0042, n 64) against before step 1"
    )
    assert "proves no cause" in cause.known[-1]


def test_a_non_finite_arm_is_known_too() -> None:
    cause, remedy = explain(build_view(baseline=nan_from(20), lower=nan_from(30)))
    assert cause is not None and "is not finite either" in cause.known[0]
    assert remedy is None


def test_a_lost_arm_adds_nothing() -> None:
    cause, remedy = explain(
        build_view(baseline=nan_from(20), lower={"outcome": None, "last_step": 5})
    )
    assert cause is not None and cause.known == () and remedy is None


def test_an_arm_without_final_validation_is_known_to_be_finite_only() -> None:
    early = Outcome(status="completed", last_step=20)
    cause, remedy = explain(
        build_view(baseline=nan_from(20), lower={"last_step": 20, "outcome": early})
    )
    assert cause is not None
    assert cause.known == ("arm lr x1/3 (optim.learning_rate=0.001) stayed finite to the end",)
    assert remedy is None  # nothing shows that it learns


def test_exception_memory_and_labels_have_their_categories() -> None:
    for status, category in (("exception", "implementation"), ("out_of_memory", "memory")):
        outcome = Outcome(status=status, last_step=3, where="forward", error_type="E", message="m")
        cause, remedy = explain(build_view(baseline={"last_step": 3, "outcome": outcome}))
        assert cause is not None and cause.category == category
        assert not cause.sentence.startswith("not replayed")
        assert remedy is None  # although the arm completed: code and memory are to be repaired


def test_illegal_labels_explain_an_exception() -> None:
    audit = make_audit("train", 480, num_bad_input_ids=1, bad_input_ids=[9])
    outcome = Outcome(status="exception", last_step=3, where="forward", error_type="IndexError")
    cause, remedy = explain(
        build_view(survey={"label_audit": [audit]}, baseline={"last_step": 3, "outcome": outcome})
    )
    assert cause is not None and cause.category == "data" and "(row 9)" in cause.sentence
    assert len(cause.evidence) == 2 and "IndexError" in cause.evidence[1]
    assert remedy is None  # the arm has the same rows


def test_no_supervised_tokens_is_data() -> None:
    def edit(record: Any) -> Any:
        if record.step != 9:
            return record
        return dataclasses.replace(record, loss=math.nan, num_supervised_tokens=0)

    cause, _ = explain(build_view(baseline={"edit": edit, "last_step": 10}))
    assert cause is not None and cause.category == "data"


def test_an_arm_without_the_nan_is_proposed_never_proven() -> None:
    _, remedy = explain(build_view(baseline=nan_from(20)))
    assert remedy is not None and not remedy.proven and remedy.status == "proposed"
    assert (remedy.override, remedy.arm) == ("optim.learning_rate=0.001", LOWER)
    assert remedy.sentence.startswith("the non-finite value did not occur in arm lr x1/3; arm lr")
    assert "finite" in remedy.judged and remedy.not_judged == ("progress",)
    assert "not judged on it: progress" in remedy.sentence


def test_an_arm_that_passes_a_failed_validation_and_improves_is_proven() -> None:
    # +2.7 % fails validation; the arm's gap of 9.3 % is below the limit of progress here.
    gates = make_gates(progress={"max_gap_frac": 0.10})
    _, remedy = explain(build_view(baseline={"final": 3.08}, lower={"final": 2.8}), gates)
    assert remedy is not None and remedy.proven
    assert remedy.status == "proven by arm lr x1/3" and "validation" in remedy.judged
    assert remedy.sentence.startswith("arm lr x1/3 passes ")
    assert "did not occur" not in remedy.sentence


def test_an_arm_that_does_not_improve_is_no_remedy_and_helped_nothing() -> None:
    cause, remedy = explain(build_view(baseline=nan_from(20), lower={"final": 3.0}))
    assert remedy is None and cause is not None
    assert len(cause.known) == 1 and "stayed finite to the end" in cause.known[0]


def test_a_loss_that_is_no_measure_proposes_nothing() -> None:
    cause, remedy = explain(build_view(survey={"objective": "rl"}, baseline=nan_from(20)))
    assert remedy is None and cause is not None
    assert cause.known == ("arm lr x1/3 (optim.learning_rate=0.001) stayed finite to the end",)


def test_a_nan_before_the_exception_is_the_first_cause() -> None:
    def edit(record: Any) -> Any:
        return dataclasses.replace(record, loss=math.nan) if record.step == 7 else record

    outcome = Outcome(status="exception", last_step=7, step=8, where="forward", error_type="E")
    baseline = {"last_step": 7, "outcome": outcome, "edit": edit}
    cause, remedy = explain(build_view(baseline=baseline))
    assert cause is not None and "loss is not finite at step 7" in cause.sentence
    assert cause.category == "undetermined" and "the recipe raised" in cause.evidence[1]
    assert remedy is None


def test_an_arm_that_fails_another_gate_is_no_remedy() -> None:
    _, remedy = explain(build_view(baseline=nan_from(20), lower={"final": 3.5}))
    assert remedy is None


def test_the_reference_of_a_progress_failure_is_only_proposed() -> None:
    _, remedy = explain(build_view(baseline={"final": 2.9}, lower={"final": 2.0}))
    assert remedy is not None and remedy.status == "proposed"
    assert remedy.not_judged == ("progress",) and "changed by -1 (SE" in remedy.sentence


def test_a_validation_failure_with_progress_failure_is_proposed() -> None:
    _, remedy = explain(build_view(baseline={"final": 3.3}, lower={"final": 2.0}))
    assert remedy is not None and not remedy.proven
    assert "validation" in remedy.judged and "progress" in remedy.not_judged


def test_a_failure_that_cannot_be_judged_on_the_arm_has_no_remedy() -> None:
    moved = make_movement(frozen_moved=[{"name": "embed", "num_elements": 5}])
    view = with_baseline(build_view(), evidence=(moved,))
    cause, remedy = explain(view)
    assert cause is not None and cause.category == "implementation" and remedy is None


def test_a_waived_failure_asks_for_no_remedy() -> None:
    gates = make_gates(waive={"finite": "known"})
    cause, remedy = explain(build_view(baseline=nan_from(20)), gates)
    assert cause is None and remedy is None


def with_another(
    view: PilotView, name: str, variable: str, value: str, final: float, order: int
) -> PilotView:
    """The view with one more completed arm that ends at the validation loss ``final``."""
    rate = float(value) if variable == RATE else view.plan.schedule.learning_rate
    donor = build_view(lower={"final": final, "learning_rate": rate}).arms[LOWER]
    title = name.replace("_", " ")
    job = dataclasses.replace(
        donor.job, arm=name, title=title, variable=variable, value=value, order=order
    )
    arms = {**view.arms, name: dataclasses.replace(donor, job=job)}
    return dataclasses.replace(view, arms=arms)


RATE, CLIP = "optim.learning_rate", "optim.max_grad_norm"


def test_a_still_lower_arm_proves_the_lower_one() -> None:
    view = build_view(baseline={"final": 3.3}, lower={"final": 2.0})
    view = with_another(view, "lr_lowest", RATE, "0.0003", 1.9, 2)
    _, remedy = explain(view)
    # The lowest ends lower, but nothing shows that a still lower rate would not be far better.
    assert remedy is not None and remedy.proven and remedy.arm == LOWER


def test_of_several_proven_arms_the_best_is_the_remedy() -> None:
    view = build_view(baseline={"final": 3.3}, lower={"final": 2.0})
    view = with_another(view, "lr_lowest", RATE, "0.0003", 1.9, 2)
    view = with_another(view, "clip_1", CLIP, "1.0", 1.8, 3)
    view = with_another(view, "clip_2", CLIP, "2.0", 1.85, 4)
    _, remedy = explain(view)
    assert remedy is not None and remedy.proven
    assert (remedy.arm, remedy.override) == ("clip_1", "optim.max_grad_norm=1.0")


def test_an_arm_that_fails_alike_is_named_as_no_cure() -> None:
    view = build_view(baseline={"final": 3.3}, lower={"final": 2.0})
    view = with_another(view, "clip_1", CLIP, "1.0", 3.4, 3)
    cause, remedy = explain(view)
    assert cause is not None
    assert cause.no_cures == (
        "arm clip 1 (optim.max_grad_norm=1.0) fails validation, progress too",
    )
    assert remedy is not None and remedy.arm == LOWER


def test_to_take_out_clipping_needs_proof() -> None:
    view = build_view(baseline=nan_from(20), lower={"final": 2.5})
    view = with_another(view, "clip_off", CLIP, "null", 2.0, 3)
    _, remedy = explain(view)
    assert remedy is not None and remedy.arm == LOWER


def test_a_replica_is_neither_cure_nor_no_cure() -> None:
    view = build_view(baseline={"final": 3.3}, lower={"final": 2.0})
    view = with_another(view, "replica_1", "pilot.seed", "1000", 1.0, 3)
    job = dataclasses.replace(view.arms["replica_1"].job, role="replica")
    arms = {**view.arms, "replica_1": dataclasses.replace(view.arms["replica_1"], job=job)}
    cause, remedy = explain(dataclasses.replace(view, arms=arms))
    assert cause is not None and cause.no_cures == ()
    assert remedy is not None and remedy.arm == LOWER


def test_a_seed_is_no_remedy() -> None:
    view = build_view(baseline={"final": 3.3}, lower={"final": 2.0})
    view = with_another(view, "lr_lowest", RATE, "0.0003", 1.9, 2)
    view = with_another(view, "seed_5", "pilot.seed", "5", 1.0, 3)
    _, remedy = explain(view)
    assert remedy is not None and remedy.arm == LOWER


def test_a_key_that_is_new_keeps_its_plus_in_the_remedy() -> None:
    view = build_view(baseline={"final": 3.3}, lower={"final": 2.0})
    view = with_another(view, "lr_lowest", RATE, "0.0003", 1.9, 2)
    view = with_another(view, "noise", "recipe.noise", "0.1", 1.7, 3)
    _, remedy = explain(view)
    assert remedy is not None and remedy.override == "+recipe.noise=0.1"
