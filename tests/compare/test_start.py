"""An arm that did not begin where the baseline did is compared with nothing."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace

import pytest

from pilot.arms.settings import Arms
from pilot.arms.specs import REPLICA
from pilot.compare.effects import effect
from pilot.compare.noise import UNKNOWN
from pilot.compare.start import other_start
from pilot.judge import judge
from pilot.records import ValidationRecord
from pilot.view import PilotView
from tests.factories import LOWER, build_view, make_gates, with_arm

VIEW = build_view()


def started(
    frac: float, variable: str = "optim.learning_rate", precision: str = "fp32", role: str = ""
) -> PilotView:
    """The arm's losses before its first step are those of the baseline, and ``frac`` more."""
    arm = VIEW.arms[LOWER]
    validations = tuple(_more(v, frac) if v.at == "before" else v for v in arm.validations)
    job = dataclasses.replace(arm.job, variable=variable, **({"role": role} if role else {}))
    view = with_arm(VIEW, LOWER, validations=validations, job=job)
    return replace(view, config={**view.config, "precision": precision})


def _more(record: ValidationRecord, frac: float) -> ValidationRecord:
    sums = tuple(value * (1.0 + frac) for value in record.loss_sums)
    return replace(record, loss_sums=sums, loss=record.loss * (1.0 + frac))


@pytest.mark.parametrize(
    ("variable", "precision", "frac", "differs"),
    [
        ("optim.learning_rate", "fp32", 0.0, False),
        ("optim.learning_rate", "fp32", 1e-6, False),  # rounding
        ("optim.learning_rate", "fp32", 1e-4, True),
        ("optim.learning_rate", "fp32", -1e-4, True),
        ("optim.learning_rate", "bf16", 1e-4, False),
        ("optim.learning_rate", "bf16", 1e-2, True),
        ("batch.micro_batch_size", "fp32", 1e-4, False),
        ("batch.sequence_length", "fp32", 1e-2, True),
        ("recipe.arguments.label_smoothing_factor", "fp32", 8e-5, True),
        ("recipe.arguments.tf32", "fp32", 1e-3, False),
        ("precision", "fp32", 1e-3, False),
        ("pilot.seed", "fp32", 0.1, False),  # other adapters
        ("recipe.width", "fp32", 0.5, False),  # another model, on purpose
        ("optim.learning_rate", "fp32", math.nan, False),
        ("optim.learning_rate", "fp32", math.inf, False),
    ],
)
def test_what_counts_as_another_start(
    variable: str, precision: str, frac: float, differs: bool
) -> None:
    view = started(frac, variable, precision)
    reason = other_start(view, view.arms[LOWER])
    assert bool(reason) is differs
    word = effect(view, Arms(), view.arms[LOWER], UNKNOWN).word
    assert (word == "not compared") is differs
    if differs:
        assert "before step 1 its loss is" in reason
        assert ("part of the loss" in reason) is variable.startswith("recipe.arguments.")


def test_a_replica_and_a_missing_validation() -> None:
    view = started(0.1, role=REPLICA)
    assert other_start(view, view.arms[LOWER]) == ""
    view = with_arm(VIEW, LOWER, validations=VIEW.arms[LOWER].validations[1:])
    assert other_start(view, view.arms[LOWER]) == ""
    without = replace(VIEW, arms={LOWER: VIEW.arms[LOWER]})
    assert other_start(without, without.arms[LOWER]) == ""


def test_it_is_no_reference_for_progress() -> None:
    assert judge(VIEW, make_gates()).word == "GO"
    judgement = judge(started(0.01), make_gates())
    assert judgement.word == "INCONCLUSIVE"
    (gate,) = [row for row in judgement.verdict["gates"] if row["name"] == "progress"]
    assert "is not comparable: before step 1" in gate["sentence"]
    assert judgement.verdict["next"].startswith("seed whatever draws the weights")
