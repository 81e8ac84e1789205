"""Plans: what is covered, what is refused, with the numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pilot.config import Config
from pilot.errors import PlanRefused
from pilot.jsonl import parse, to_json
from pilot.plan import Plan, last_drawn_step, make_plan, read_plan
from pilot.schedule import RateTable, full_schedule
from pilot.segments import cooldown_rate
from tests.trees import config_tree

SURVEY: dict[str, Any] = {
    "num_train_rows": 800,
    "checkpoint_bytes": 1_000,
    "validation_rows": {"validation": 20},
    "timing": {"start_secs": 2.0, "step_secs": 0.1, "validation_secs": 1.0},
    "failure": None,
}


def plan(survey: dict[str, Any] | None = None, **sections: Any) -> Plan:
    """The plan of the small configuration with sections changed."""
    return make_plan(Config.model_validate(config_tree(**sections)), survey or SURVEY)


def test_the_usual_shape() -> None:
    p = plan(
        full_run={"schedule_steps": 1500, "warmup_steps": 30},
        pilot={"min_peak_steps": 128, "cooldown_steps": 36},
    )
    assert [(s.name, s.first_step, s.last_step) for s in p.segments] == [
        ("warm-up", 1, 30),
        ("peak", 31, 158),
        ("cool-down", 159, 194),
    ]
    assert p.validations == {"before": 0, "warmup_end": 30, "peak_end": 158, "cooldown_end": 194}
    assert p.checkpoints == {"start": 0, "warmup_end": 30, "peak_end": 158}
    assert (p.stop_step, p.pilot_steps, p.num_peak_steps) == (158, 158, 128)
    assert p.final_validation == "cooldown_end" and not p.whole_run
    assert p.num_rows_needed == 194 * 8
    assert p.share_of_full_run == pytest.approx(158 / 1500)
    # baseline and six arms, one after the other: start, 194 steps, 4 validations
    assert p.num_arms == 6 and p.num_arm_steps == 6 * 194
    assert p.price_ratio == pytest.approx(7 * 194 / 158)
    assert p.expected_secs == pytest.approx(7 * (2.0 + 19.4 + 4.0))
    rates = [(s.first_learning_rate, s.last_learning_rate) for s in p.segments]
    assert rates[0] == (0.0, pytest.approx(0.1 * 29 / 30))
    assert rates[1][0] == 0.1 and 0.9 * 0.1 < rates[1][1] < 0.1
    assert rates[2][0] < rates[1][1] and rates[2][1] > 0.0


def test_several_processes_share_a_step() -> None:
    sections: dict[str, Any] = {
        "recipe": {"trainer": "train.py"},
        "engine": {"name": "transformers"},
        "full_run": {"schedule_steps": None, "epochs": 10.0},
    }
    one = plan(**sections)
    two = plan(**sections, launcher={"num_processes": 2})
    assert (two.num_processes, two.rows_per_step) == (2, 2 * one.rows_per_step)
    assert two.schedule.schedule_steps * 2 == one.schedule.schedule_steps
    assert two.num_rows_needed == 2 * one.num_rows_needed
    assert any("world sizes other than 2" in line for line in two.not_measured)
    assert any("world sizes other than 1" in line for line in one.not_measured)
    assert any("engine=native runs one process" in line for line in plan().not_measured)


def test_what_an_engine_cannot_do_is_not_measured() -> None:
    able = dict.fromkeys(("can_replay", "can_branch", "reports_row_ids"), True)
    assert plan({**SURVEY, "capabilities": able}).not_measured == plan().not_measured
    lacking = {**able, "can_branch": False, "reports_row_ids": False}
    lines = plan({**SURVEY, "capabilities": lacking, "not_measured": ["x"]}).not_measured
    found = [line for line in lines if line not in plan().not_measured]
    assert found == [
        "the cool-down, and arms that begin at a state of the baseline: engine=native has no "
        "can_branch",
        "which rows a step trained on: steps cannot be paired by their rows: engine=native has no "
        "reports_row_ids",
        "x",
    ]


def test_the_warm_up_is_never_shortened() -> None:
    p = plan(full_run={"schedule_steps": 5000, "warmup_steps": 700})
    assert p.segments[0].last_step == 700 and p.stop_step == 716


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "wsd"])
def test_a_short_full_run_is_piloted_whole(kind: str) -> None:
    p = plan(
        full_run={"schedule_steps": 45, "warmup_steps": 5, "schedule": kind},
        pilot={"min_peak_steps": 128},
    )
    assert p.whole_run and p.stop_step == 45 and p.share_of_full_run == 1.0
    cooled = kind != "constant"
    assert p.cooldown_steps == (0 if cooled else 4)
    assert p.final_validation == ("run_end" if cooled else "cooldown_end")
    assert len(p.validations) == (3 if cooled else 4)


def test_a_short_peak_is_all_the_run_has() -> None:
    p = plan(
        full_run={"schedule_steps": 300, "warmup_steps": 30, "schedule": "linear"},
        pilot={"min_peak_steps": 128},
    )
    assert p.num_peak_steps == 28 and p.stop_step == 58 and not p.whole_run


def test_no_warm_up_still_gives_three_validations() -> None:
    p = plan(full_run={"warmup_steps": 0})
    assert p.validations == {"before": 0, "mid_peak": 8, "peak_end": 16, "cooldown_end": 20}
    assert [s.name for s in p.segments] == ["peak", "cool-down"]


def test_start_in_the_middle_of_the_full_run() -> None:
    p = plan(full_run={"schedule_steps": 1500, "warmup_steps": 30, "start_step": 100})
    assert p.segments[0].name == "peak" and p.segments[0].first_step == 101
    assert p.stop_step == 116 and p.pilot_steps == 16
    assert p.validations["before"] == 100
    inside = plan(full_run={"schedule_steps": 1500, "warmup_steps": 30, "start_step": 10})
    assert [(s.name, s.first_step) for s in inside.segments][0] == ("warm-up", 11)


def test_epochs_and_fractions_become_steps() -> None:
    config = Config.model_validate(
        config_tree(
            full_run={
                "schedule_steps": None,
                "epochs": 2.5,
                "warmup_steps": None,
                "warmup_frac": 0.1,
            }
        )
    )
    schedule = full_schedule(config, 801)
    assert schedule.schedule_steps == 251  # ceil(2.5 * 801 / 8)
    assert schedule.warmup_steps == 26  # ceil(25.1)


def test_the_cool_down_goes_linearly_to_zero() -> None:
    schedule = full_schedule(Config.model_validate(config_tree()), 800)
    rates = [cooldown_rate(schedule, 21, 4, i) for i in range(1, 6)]
    top = schedule.learning_rate_at(21)
    assert rates == pytest.approx([top * 4 / 5, top * 3 / 5, top * 2 / 5, top / 5, 0.0])


def test_refusals_come_all_at_once_with_their_numbers() -> None:
    with pytest.raises(PlanRefused) as caught:
        plan(
            {**SURVEY, "validation_rows": {}},
            pilot={"budget_steps": 20, "budget_secs": 1.5},
        )
    text = str(caught.value)
    assert len(caught.value.reasons) == 3
    assert "20 cannot cover 25 steps: 5 of warm-up, 16 at the peak rate, 4 of cool-down" in text
    assert "pilot.budget_secs = 1.5 is less than the expected 17 s" in text
    assert "no validation set" in text


def test_a_budget_that_just_fits_is_accepted() -> None:
    assert plan(pilot={"budget_steps": 25}).stop_step == 21
    with pytest.raises(PlanRefused):
        plan(pilot={"budget_steps": 24})


def test_a_run_that_never_reaches_its_peak_is_refused() -> None:
    with pytest.raises(PlanRefused, match="never reaches its peak rate: warm-up is 40"):
        plan(full_run={"schedule_steps": 40, "warmup_steps": 40})


@pytest.mark.parametrize(
    ("kind", "start", "stop", "num_peak"),
    [
        ("linear", 500, 516, 16),  # half of the peak rate is the most that is left
        ("cosine", 700, 716, 16),
        ("linear", 900, 911, 11),  # 0.9 of what is left lasts 11 steps
        ("linear", 990, 1000, 2),  # a short rest is piloted to its end
        ("constant", 900, 916, 16),
        ("wsd", 905, 915, 10),
        ("linear", 2, 21, 16),
    ],
)
def test_the_peak_of_a_late_start_is_the_largest_rate_that_is_left(
    kind: str, start: int, stop: int, num_peak: int
) -> None:
    run = {"schedule_steps": 1000, "warmup_steps": 5, "schedule": kind, "start_step": start}
    late = plan(full_run=run)
    assert (late.start_step, late.stop_step, late.num_peak_steps) == (start, stop, num_peak)
    first = late.schedule.learning_rate_at(max(start, 5) + 1)
    peak = next(s for s in late.segments if s.name == "peak")
    assert peak.first_step == max(start, 5) + 1 and peak.first_learning_rate == first
    assert peak.last_learning_rate >= 0.899 * first
    plain = full_schedule(Config.model_validate(config_tree(full_run=run)), 800)
    assert [late.schedule.learning_rate_at(s) for s in range(1, 1001)] == [
        plain.learning_rate_at(s) for s in range(1, 1001)
    ]


def test_the_step_of_a_checkpoint_that_only_the_survey_could_read() -> None:
    run = {"schedule_steps": 1500, "warmup_steps": 30}
    assert plan({**SURVEY, "start_step": 100}, full_run=run).start_step == 100
    with pytest.raises(PlanRefused, match="1500 steps has 0 step left after step 2000"):
        plan({**SURVEY, "start_step": 2000}, full_run=run)


def test_a_late_start_is_warned_about() -> None:
    late = plan(full_run={"schedule_steps": 1500, "warmup_steps": 30, "start_step": 100})
    assert late.warnings == (
        "starts at step 100 with the weights that the recipe builds and fresh optimizer state: "
        "no recipe.resume_from",
    )
    assert plan().warnings == ()


LACKS = "no arm of a lower learning rate: the gate progress cannot be judged"


@pytest.mark.parametrize(
    ("arms", "objective", "warned"),
    [
        ({"learning_rate_scales": ["3"]}, "lm", True),
        ({"learning_rate_scales": ["3"]}, "regression", True),
        ({"learning_rate_scales": ["3"]}, None, True),
        ({"learning_rate_scales": ["3"]}, "rl", False),
        ({"learning_rate_scales": ["3"]}, "preference", False),
        ({"learning_rate_scales": ["3"], "add": [{"optim.learning_rate": 0.01}]}, "lm", False),
        ({"budget_steps": 49}, "lm", True),  # 25 steps each
        ({"budget_steps": 50}, "lm", False),
    ],
)
def test_a_plan_without_a_lower_rate_is_warned_about(
    arms: dict[str, Any], objective: str | None, warned: bool
) -> None:
    survey = {**SURVEY, **({"objective": objective} if objective else {})}
    assert (LACKS in plan(survey, arms=arms).warnings) is warned


def test_arms_side_by_side_are_timed_in_phases() -> None:
    secs = 2.0 + 25 * 0.1 + 4.0
    survey = {**SURVEY, "num_parallel": 2}
    assert plan(survey).expected_secs == pytest.approx(4 * secs)
    assert plan(survey, pilot={"budget_secs": 1.5 * secs}).num_arms == 1


def test_what_no_experiment_checks_is_said() -> None:
    line = (
        "alignment and masking of labels, overlap of train and validation data, level of the loss: "
        "no experiment checks them in this version"
    )
    assert line in plan().not_measured
    assert (
        "check clipping: skipped by checks.skip" in plan(checks={"skip": ["clipping"]}).not_measured
    )


def test_large_states_are_pinned_only_where_needed() -> None:
    p = plan({**SURVEY, "checkpoint_bytes": 10}, pilot={"max_checkpoint_bytes": 9})
    assert p.checkpoints == {"peak_end": 21}


def test_what_was_not_surveyed_is_said() -> None:
    p = plan({**SURVEY, "timing": {}, "failure": "the recipe failed in forward: boom"})
    assert p.expected_secs is None
    assert any("boom" in line for line in p.not_measured)


def test_round_trip_through_json() -> None:
    p = plan()
    again = read_plan(parse(to_json(p)))
    assert again == p


def own_rates(count: int = 401, unknown: str = "") -> RateTable:
    """Eight steps up to 0.2, then slowly down; the configuration says 0.1."""
    rates = tuple(0.2 * min(k, 8) / 8 * 0.999 ** max(0, k - 8) for k in range(1, count + 1))
    return RateTable(rates=rates, base_rate=0.1, unknown=unknown)


def trainer_plan(table: RateTable | None, survey: dict[str, Any] | None = None) -> Plan:
    """A plan with the rates of a Trainer's own scheduler."""
    tree = config_tree(
        full_run={"schedule_steps": 400, "warmup_steps": None, "schedule": "trainer"},
        engine={"name": "transformers"},
        recipe={"trainer": "t.py"},
    )
    return make_plan(Config.model_validate(tree), {**SURVEY, **(survey or {})}, own_rates=table)


def test_a_plan_of_measured_rates() -> None:
    p = trainer_plan(own_rates())
    assert [(s.name, s.first_step, s.last_step) for s in p.segments] == [
        ("warm-up", 1, 7),
        ("peak", 8, 23),
        ("cool-down", 24, 27),
    ]
    assert p.segments[1].first_learning_rate == 0.2
    stop_rate = 0.2 * 0.999**15
    assert p.segments[2].first_learning_rate == pytest.approx(stop_rate * 4 / 5)
    # in the file: what the cool-down, the extension and the step behind it need, no more
    assert len(p.schedule.rates) == 23 + p.extension_steps + 1 == 23 + 96 + 1
    again = read_plan(parse(to_json(p)))
    assert again == p
    assert again.schedule.learning_rate_at(119) == own_rates().rates[118]


def test_measured_rates_end_where_they_are_known() -> None:
    p = trainer_plan(own_rates(count=12))
    assert (p.stop_step, p.extension_steps, p.whole_run) == (12, 0, False) and p.cooldown_steps == 4


@pytest.mark.parametrize(
    ("table", "survey", "words"),
    [
        (None, {"failure": "the survey was killed"}, "are not known: the survey was killed"),
        (RateTable(rates=(0.0,) * 401, base_rate=0.1), {}, "own rate is 0 at every step"),
        (RateTable(rates=(math.nan,) * 9, base_rate=0.1, unknown="no rate"), {}, "known: no rate"),
    ],
)
def test_rates_that_give_no_plan(
    table: RateTable | None, survey: dict[str, Any], words: str
) -> None:
    with pytest.raises(PlanRefused, match=words):
        trainer_plan(table, survey)


def test_what_the_plan_says_of_rates_it_cannot_know() -> None:
    facts = {"unknown": "X reacts to metrics", "peaks": [0.2, 0.4], "proportional": False,
             "num_groups": 2, "raises": "the scheduler raises after step 9"}  # fmt: skip
    p = trainer_plan(own_rates(unknown="X reacts to metrics"), {"own_rates": facts})
    assert "the learning rates of the full run: X reacts to metrics" in p.not_measured
    text = " ".join(p.warnings)
    assert "highest rate is 0.2, optim.learning_rate is 0.1" in text
    assert "2 parameter groups follow different schedules" in text and "after step 9" in text


HELD: dict[str, Any] = {"mode": "undrawn", "num_rows": 40, "refused": ""}


@pytest.mark.parametrize(
    ("facts", "part"),
    [
        ({"held_out": HELD}, "40 training rows that no step of this pilot draws"),
        ({"held_out": {**HELD, "mode": "share"}}, "40 of 800 training rows are held out"),
        ({"held_out": {**HELD, "has_been_trained_on": True}}, "may have been trained on before"),
        ({"num_rows_measured": 96}, "lengths are those of 96 of 800 rows"),
        ({"order_is_fixed": False}, "shuffles by the random state it finds"),
        ({"data": [{"name": "train", "note": "odd", "unknown": []}]}, "paired by row number alone"),
        ({"data": [{"name": "train", "note": "", "unknown": ["X by its type only"]}]}, "X by its"),
    ],
    ids=["undrawn", "share", "trained on", "sampled", "order", "unstable", "unknown"],
)
def test_what_is_to_be_known_of_the_rows(facts: dict[str, Any], part: str) -> None:
    plain = plan({**SURVEY, "num_rows_measured": 800, "order_is_fixed": True, "data": []})
    found = plan({**SURVEY, **facts})
    (line,) = [line for line in found.warnings if part in line]
    assert not any(part in line for line in plain.warnings) and line


def test_why_no_row_is_held_out_is_the_refusal() -> None:
    held = {"mode": "", "num_rows": 0, "refused": "it has 30 training rows"}
    with pytest.raises(PlanRefused) as caught:
        plan({**SURVEY, "validation_rows": {}, "held_out": held})
    assert list(caught.value.reasons) == ["it has 30 training rows"]


def test_the_last_step_that_draws_rows() -> None:
    """21 steps, then a cool-down of 4 and an extension of 96 at most, from the same place."""
    config = Config.model_validate(config_tree())
    assert last_drawn_step(config, 800) == 21 + 96
    short = Config.model_validate(config_tree(pilot={"max_extension_steps": 0}))
    assert last_drawn_step(short, 800) == 21 + 4
    assert last_drawn_step(short, 800) * 8 == plan(pilot={"max_extension_steps": 0}).num_rows_needed


def test_a_validation_set_that_is_the_training_set_is_told() -> None:
    def lines(*digests: str | None) -> list[str]:
        names = ("train_dataset", "eval_dataset", "eval_dataset_more")
        sets = [
            {
                "name": name,
                "rows": 30,
                "sha256": digest,
                "note": "",
                "unknown": [],
                "sampled": False,
            }
            for name, digest in zip(names, digests, strict=False)
        ]
        return [line for line in plan({**SURVEY, "data": sets}).warnings if "very rows" in line]

    assert lines("a", "b") == [] and lines("a") == [] and lines(None, None) == []
    assert lines("a", "a") == [
        "eval_dataset has the very rows of train_dataset: its loss says nothing of other data"
    ]
    assert len(lines("a", "b", "b")) == 1


def test_the_rates_that_are_left_of_a_resumed_run_are_no_surprise() -> None:
    def warned(peak: float, **full_run: Any) -> bool:
        facts = {"own_rates": {"peaks": [peak], "num_groups": 1}}
        found = plan({**SURVEY, **facts}, full_run={"schedule": "linear", **full_run})
        return any("highest rate" in line for line in found.warnings)

    run: dict[str, Any] = {"schedule_steps": 500, "warmup_steps": 0, "start_step": 250}
    rate = plan(full_run={"schedule_steps": 500}).schedule.learning_rate
    assert not warned(0.5 * rate, **run)
    assert warned(rate, **run) and warned(0.5 * rate, schedule_steps=500)
