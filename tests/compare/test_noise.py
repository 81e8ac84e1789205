"""The noise floor: worked numbers, what does not count, stored floors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilot.compare.noise import (
    MIN_RUNS,
    UNKNOWN,
    NoiseFloor,
    noise_floor,
    sd_of_steps,
    stored_floor,
    stored_values,
)
from pilot.records import Outcome, StepRecord, ValidationRecord
from pilot.view import ArmView, PilotView
from tests.factories import build_view, with_arm, with_baseline

VIEW = build_view()
STORED: dict[str, Any] = {
    "sd_validation": 0.02, "sd_steps": 0.01, "num_runs": 4, "seed_matters": True, "recipe": "x"
}  # fmt: skip


def shifted(arm: ArmView, by: float, step_by: float | None = None) -> dict[str, Any]:
    """The arm's parts with every loss moved: validations by ``by``, steps by ``step_by``."""
    step_by = by if step_by is None else step_by
    return {
        "validations": tuple(_moved(record, by) for record in arm.validations),
        "steps": tuple(dataclasses.replace(r, loss=r.loss + step_by) for r in arm.steps),
    }


def _moved(record: ValidationRecord, by: float) -> ValidationRecord:
    pairs = zip(record.loss_sums, record.token_counts, strict=True)
    sums = tuple(total + by * count for total, count in pairs)
    return dataclasses.replace(record, loss=record.loss + by, loss_sums=sums)


def with_replicas(*shifts: float, view: PilotView = VIEW, step_scale: float = 0.5) -> PilotView:
    """The view with replicas whose losses are those of the baseline, moved."""
    base = view.arms["baseline"]
    arms = dict(view.arms)
    for number, shift in enumerate(shifts, start=1):
        name = f"replica_{number}"
        job = dataclasses.replace(
            base.job, arm=name, title=f"replica {number}", role="replica", variable="pilot.seed"
        )
        parts = shifted(base, shift, step_scale * shift)
        arms[name] = dataclasses.replace(base, job=job, evidence=(), **parts)
    return dataclasses.replace(view, arms=arms)


def ended(view: PilotView, name: str, status: str) -> PilotView:
    return with_arm(view, name, outcome=Outcome(status=status, last_step=48))


def test_three_runs_give_the_sample_sd() -> None:
    # Losses L, L + 0.03, L - 0.03: sd = 0.03 with two degrees of freedom.
    floor = noise_floor(with_replicas(0.03, -0.03))
    assert floor.sd_validation == pytest.approx(0.03)
    assert floor.sd_steps == pytest.approx(0.015)
    assert (floor.num_runs, floor.source, floor.seed_matters) == (3, "replicas", True)
    assert floor.sentence == (
        "3 runs that differ only by the seed: sd of the final validation loss 0.03, of the loss at "
        "the peak 0.015"
    )


def test_no_replica_one_replica_is_no_floor() -> None:
    assert noise_floor(VIEW) == UNKNOWN
    assert UNKNOWN.sentence == "noise unknown: no replica was run"
    floor = noise_floor(with_replicas(0.03))
    assert (floor.sd_validation, floor.sd_steps, floor.source) == (None, None, "none")
    assert (floor.num_runs, floor.seed_matters) == (2, None)
    assert floor.sentence == (
        "noise unknown: 2 of the 3 runs needed have a finite final validation"
    )
    assert MIN_RUNS == 3


@pytest.mark.parametrize("num", [1, 2])
def test_identical_replicas_are_a_measured_zero(num: int) -> None:
    view = with_replicas(*[0.0] * num)
    for number in range(1, num + 1):
        view = ended(view, f"replica_{number}", Outcome.IDENTICAL)
        view = with_arm(view, f"replica_{number}", validations=(), steps=())
    floor = noise_floor(view)
    assert (floor.sd_validation, floor.sd_steps) == (0.0, 0.0)
    assert (floor.num_runs, floor.seed_matters) == (num + 1, False)
    assert floor.sentence.startswith("the seed changes nothing in this recipe")


def test_a_whole_replica_that_is_bit_identical_is_the_same_fact() -> None:
    assert noise_floor(with_replicas(0.0, 0.0)).seed_matters is False
    moved_steps = with_replicas(0.0, 0.0)
    steps = shifted(VIEW.arms["baseline"], 0.0, 0.001)["steps"]
    floor = noise_floor(with_arm(moved_steps, "replica_2", steps=steps))
    assert floor.seed_matters is True and floor.sd_validation == 0.0


def test_an_identical_replica_counts_as_a_run_with_the_baselines_loss() -> None:
    view = ended(with_replicas(0.0, 0.03), "replica_1", Outcome.IDENTICAL)
    floor = noise_floor(with_arm(view, "replica_1", validations=(), steps=()))
    assert floor.sd_validation == pytest.approx(0.03 / math.sqrt(3))  # of 0, 0, 0.03
    assert (floor.num_runs, floor.seed_matters) == (3, True)


@pytest.mark.parametrize("status", [Outcome.EXCEPTION, Outcome.OUT_OF_MEMORY])
def test_a_failed_replica_is_no_run(status: str) -> None:
    floor = noise_floor(ended(with_replicas(0.03, -0.03), "replica_2", status))
    assert (floor.source, floor.num_runs) == ("none", 2)
    assert floor.seed_matters is None
    three = ended(with_replicas(0.03, -0.03, 9.0), "replica_3", status)
    assert noise_floor(three).sd_validation == pytest.approx(0.03)


def test_a_replica_that_diverged_leaves_no_floor_however_many_others_there_are() -> None:
    three = ended(with_replicas(0.03, -0.03, 9.0), "replica_3", Outcome.STOPPED)
    floor = noise_floor(three)
    assert (floor.sd_validation, floor.sd_steps, floor.source) == (None, None, "none")
    assert (floor.num_runs, floor.seed_matters) == (3, True)
    assert floor.sentence == (
        "noise unknown: replica 3 became non-finite: no standard deviation describes that"
    )
    kept = noise_floor(dataclasses.replace(three, stored_noise=STORED))
    assert kept == floor  # what an earlier pilot stored is refuted


def test_a_stopped_replica_forbids_that_the_seed_changes_nothing() -> None:
    view = with_replicas(0.0, 0.0, 0.0)
    for name, status in (
        ("replica_1", Outcome.IDENTICAL), ("replica_2", Outcome.IDENTICAL),
        ("replica_3", Outcome.STOPPED),
    ):  # fmt: skip
        view = ended(view, name, status)
    floor = noise_floor(view)
    assert (floor.seed_matters, floor.sd_validation) == (True, None)


def test_a_lost_replica_is_no_run() -> None:
    view = with_arm(with_replicas(0.03, -0.03), "replica_1", outcome=None)
    assert noise_floor(view).source == "none"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_validations_never_enter(bad: float) -> None:
    for view in (with_replicas(0.03, bad), with_replicas(0.03, -0.03, bad)):
        floor = noise_floor(view)
        assert (floor.source, floor.seed_matters) == ("none", True)
    spoilt = shifted(VIEW.arms["baseline"], bad)["validations"]
    floor = noise_floor(with_baseline(with_replicas(0.03, -0.03), validations=spoilt))
    assert floor.sentence == "noise unknown: the baseline has no finite final validation"


def test_other_examples_are_not_used() -> None:
    view = with_replicas(0.03, -0.03)
    for name in ("held_out", "other"):
        records = [
            dataclasses.replace(
                r, token_counts=(*r.token_counts[:-1], r.token_counts[-1] + 1)
            ) if r.name == name else r
            for r in view.arms["replica_2"].validations
        ]  # fmt: skip
        floor = noise_floor(with_arm(view, "replica_2", validations=tuple(records)))
        assert floor.source == ("none" if name == "held_out" else "replicas")


def test_without_a_baseline_or_a_final_validation_there_is_none() -> None:
    view = with_replicas(0.03, -0.03)
    arms = {name: arm for name, arm in view.arms.items() if name != "baseline"}
    assert noise_floor(dataclasses.replace(view, arms=arms)).source == "none"
    early = tuple(r for r in view.arms["replica_1"].validations if r.at != "cooldown_end")
    assert noise_floor(with_arm(view, "replica_1", validations=early)).source == "none"


def test_step_losses_count_only_where_all_rows_are_the_same() -> None:
    view = with_replicas(0.03, -0.03)
    base = view.arms["baseline"].steps

    def floor(edit: Sequence[StepRecord]) -> NoiseFloor:
        return noise_floor(with_arm(view, "replica_1", steps=tuple(edit)))

    moved = view.arms["replica_1"].steps
    wild = [
        dataclasses.replace(r, loss=99.0, row_hash="f" * 16) if r.step == 20 else r for r in moved
    ]
    assert floor(wild).sd_steps == pytest.approx(0.015)
    nan = [dataclasses.replace(r, loss=math.nan) if r.step == 20 else r for r in moved]
    assert floor(nan).sd_steps == pytest.approx(0.015)
    warm = [dataclasses.replace(r, loss=99.0) if r.step <= 12 else r for r in moved]
    assert floor(warm).sd_steps == pytest.approx(0.015)  # only the peak counts: steps 13 to 48
    assert floor(moved[:20]).sd_steps == pytest.approx(0.015)  # 8 shared steps
    assert floor(moved[:19]).sd_steps is None
    other = [dataclasses.replace(r, row_hash="f" * 16) for r in base]
    found = floor(other)
    assert found.sd_steps is None and found.sd_validation == pytest.approx(0.03)
    assert found.sentence.endswith("of the loss at the peak unknown")


def test_the_sd_of_the_steps_is_that_of_the_steps_asked_for() -> None:
    view = with_replicas(0.03, -0.03)  # step losses off by 0.015 at every step
    for name, sign in (("replica_1", 1), ("replica_2", -1)):
        steps = [
            dataclasses.replace(r, loss=r.loss + sign * 0.1) if r.step <= 30 else r
            for r in view.arms[name].steps
        ]
        view = with_arm(view, name, steps=tuple(steps))
    floor = noise_floor(view)
    assert floor.sd_steps == pytest.approx(0.015 + 0.1 * 18 / 36)
    assert sd_of_steps(floor, 13, 30) == pytest.approx(0.115)
    assert sd_of_steps(floor, 13, 48) == pytest.approx(0.065)
    assert sd_of_steps(floor, 31, 48) == pytest.approx(0.015)
    assert sd_of_steps(floor, 1, 20) == pytest.approx(0.115)  # 8 steps of the peak
    assert sd_of_steps(floor, 1, 19) is None
    assert sd_of_steps(floor, 40, 20) is None


def test_a_stored_sd_of_the_whole_peak_is_scaled_as_white_noise() -> None:
    floor = noise_floor(dataclasses.replace(VIEW, stored_noise=STORED))  # 36 peak steps
    assert floor.num_peak_steps == 36
    assert sd_of_steps(floor, 13, 48) == pytest.approx(0.01)
    assert sd_of_steps(floor, 13, 21) == pytest.approx(0.02)  # sqrt(36 / 9)
    assert sd_of_steps(floor, 1, 100) == pytest.approx(0.01)  # never below
    zero = {"sd_validation": 0.0, "num_runs": 2, "seed_matters": False}
    still = noise_floor(dataclasses.replace(VIEW, stored_noise=zero))
    assert sd_of_steps(still, 13, 21) == 0.0
    assert sd_of_steps(UNKNOWN, 13, 21) is None


def test_a_stored_floor_replaces_replicas() -> None:
    view = dataclasses.replace(VIEW, stored_noise=STORED)
    floor = noise_floor(view)
    assert floor == NoiseFloor(
        sd_validation=0.02, sd_steps=0.01, num_runs=4, source="stored", seed_matters=True
    )
    assert "stored by an earlier pilot" in floor.sentence
    own = noise_floor(dataclasses.replace(with_replicas(0.03, -0.03), stored_noise=STORED))
    assert own.source == "replicas"
    one = noise_floor(dataclasses.replace(with_replicas(0.03), stored_noise=STORED))
    assert one.source == "stored"


@pytest.mark.parametrize(
    "change",
    [
        {"sd_validation": None}, {"sd_validation": math.nan}, {"sd_validation": math.inf},
        {"sd_validation": -0.1}, {"sd_validation": "0.02"}, {"sd_validation": True},
        {"num_runs": 2}, {"num_runs": None}, {"num_runs": 3.0}, {"num_runs": True},
        {"seed_matters": None}, {"seed_matters": "yes"}, {"seed_matters": False},
        {"seed_matters": False, "sd_validation": 0.0},
    ],
)  # fmt: skip
def test_invalid_stored_floors_are_none(change: dict[str, Any]) -> None:
    assert stored_floor({**STORED, **change}) is None
    assert noise_floor(dataclasses.replace(VIEW, stored_noise={**STORED, **change})) == UNKNOWN


def test_incomplete_stored_floors() -> None:
    assert stored_floor({}) is None
    without = stored_floor({k: v for k, v in STORED.items() if k != "sd_steps"})
    assert without is not None and without.sd_steps is None
    zero = {"sd_validation": 0.0, "num_runs": 2, "seed_matters": False}
    assert stored_floor(zero) == NoiseFloor(
        sd_validation=0.0, sd_steps=0.0, num_runs=2, source="stored", seed_matters=False
    )
    assert (
        "stored by an earlier pilot"
        in noise_floor(dataclasses.replace(VIEW, stored_noise=zero)).sentence
    )


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=5))
def test_what_is_stored_reads_back(shifts: list[float]) -> None:
    floor = noise_floor(with_replicas(*shifts))
    again = stored_floor(stored_values(floor))
    assert again == dataclasses.replace(floor, source="stored")


def test_judging_a_floor_is_blind_to_the_order_of_arms() -> None:
    view = with_replicas(0.03, -0.01)
    turned = dataclasses.replace(view, arms=dict(reversed(list(view.arms.items()))))
    assert noise_floor(view) == noise_floor(turned)
