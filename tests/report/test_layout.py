from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pilot.arms.price import PlannedArm
from pilot.folder import PilotFolder
from pilot.jsonl import write_json
from pilot.judge import judge
from pilot.plan import Plan
from pilot.report.arm_text import FOOTNOTE
from pilot.report.layout import verdict_blocks
from pilot.report.plan_layout import plan_blocks
from pilot.report.words import share_text
from tests.factories import build_view, make_gates
from tests.report.parts import CLEAN_EVIL, EVIL, arm_row, effect, several_arms


def shown(blocks: list[Any]) -> list[str]:
    """The blocks as an 80 column terminal shows them, without colours."""
    stream = io.StringIO()
    console = Console(file=stream, width=80, markup=False, highlight=False, color_system=None)
    for block in blocks:
        console.print(block, soft_wrap=not hasattr(block, "columns"))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def cells(line: str) -> list[str]:
    """The cells of a table's line: two spaces and more part them."""
    return re.split(r" {2,}", line.strip())


def planned(**changes: Any) -> PlannedArm:
    values: dict[str, Any] = {
        "name": "lr_x3", "title": "lr x3", "role": "arm", "variable": "optim.learning_rate",
        "value": "0.009", "baseline_value": "0.003", "num_steps": 56, "secs": 4.2,
    }  # fmt: skip
    return PlannedArm(**{**values, **changes})


def plan(*arms: PlannedArm, **changes: Any) -> Plan:
    steps = sum(arm.num_steps for arm in arms if not arm.left_out)
    values: dict[str, Any] = {"arms": arms, "num_arm_steps": steps, "expected_secs": 250.0}
    return dataclasses.replace(build_view().plan, **{**values, **changes})


def test_the_plan_fits_into_eighty_columns() -> None:
    view = build_view(config={"recipe__name": "synthetic"})
    warning = f"a very long warning {EVIL} " + "word " * 30
    lines = shown(plan_blocks(plan(planned(), warnings=(warning,)), view.survey))
    assert max(map(len, lines)) <= 80
    assert lines[0] == "plan for synthetic: 48 steps, 12 % of the full run's 400"
    text = " ".join(" ".join(lines).split())
    for part in (
        "warm-up 1-12 12 0 to 2.75e-03",
        "cool-down 49-56 8 2.67e-03 to 3.33e-04 (a branch)",
        "validation after step: before 0, warmup end 12, peak end 48, cooldown end 56",
        "held_out 64 rows, decides; other 64 rows",
        "12 MB each, 36 MB an arm",
        "8 rows a step, 448 rows needed of 480; sources: code, prose, rare",
        "events a spike or shift undecided at step 48 extends the baseline by up to 96 steps",
        "not measured invariance and resume",
        CLEAN_EVIL.replace("  ", " "),
    ):
        assert part in text


def test_how_many_rows_are_validated_is_said() -> None:
    view = build_view()
    for most, words in ((None, "held_out 64 rows, decides"), (16, "held_out 16 of 64 rows")):
        survey = {**view.survey, "max_validation_rows": most}
        text = " ".join(" ".join(shown(plan_blocks(plan(planned()), survey))).split())
        assert words in text


def test_the_price_is_said_before_it_is_paid() -> None:
    arms = (
        planned(),
        planned(title="clip off", variable="optim.max_grad_norm", value="null",
                baseline_value="1.0", secs=None),
        planned(title="replica 1", left_out="arms.budget_steps = 200: 224 steps with it"),
        planned(title="replica 2", left_out="arms.budget_steps = 200: 224 steps with it"),
        planned(title="[b]x", left_out="it cannot\nmatter"),
    )  # fmt: skip
    lines = shown(plan_blocks(plan(*arms, num_parallel=2), build_view().survey))
    (at,) = (n for n, line in enumerate(lines) if "steps at most" in line)
    assert [cells(line) for line in lines[at : at + 4]] == [
        ["arm", "changes", "steps at most", "time"],
        ["baseline", "nothing: the recipe as it is", "56", "4.2s"],
        ["lr x3", "optim.learning_rate 0.003 -> 0.009", "56", "4.2s"],
        ["clip off", "optim.max_grad_norm 1.0 -> null", "56", "-"],
    ]
    assert lines[at + 4 : at + 8] == [
        "  left out      replica 1, replica 2: arms.budget_steps = 200: 224 steps with it",
        "                [b]x: it cannot matter",
        "  price         at most 168 steps, 3.5 x the run's own 48, about 4m10s, 2 arms",
        "                at a time; arms that are decided early cost less",
    ]


def test_a_plan_without_arms_or_time_says_so() -> None:
    text = " ".join(shown(plan_blocks(plan(expected_secs=None), build_view().survey)))
    assert "price         at most 56 steps, 1.17 x the run's own 48, time unknown  " in text
    assert "left out" not in text and "decided early" not in text


def verdict(**changes: Any) -> dict[str, Any]:
    return {**judge(build_view(), make_gates()).verdict, **changes}


def test_the_verdict_says_all_in_words(tmp_path: Path) -> None:
    root = tmp_path / "my pilot"
    root.mkdir()
    write_json(PilotFolder(root).tracking, {"link": "http://h/#/experiments/1/runs/ab"})
    gates = [
        {"name": "finite", "need": "required", "status": "fail", "sentence": f"bad {EVIL}"},
        {"name": "memory", "need": "optional", "status": "not_measured", "sentence": "no limit"},
        {"name": "events", "need": "required", "status": "waived", "judged": "fail",
         "waived": "known", "sentence": "a spike"},
    ]  # fmt: skip
    given = verdict(
        verdict="NO-GO",
        why="w " * 60,
        next="python -m pilot resume DIR",
        gates=gates,
        cause={"category": "data", "sentence": "row 5"},
        remedy={"override": "optim.learning_rate=0.001", "status": "proven by arm lr x1/3"},
    )
    lines = shown(verdict_blocks(given, root))
    assert lines[1].startswith("NO-GO  w w w")
    assert "  finite  FAIL          bad boom red [bold]x[/bold] ?" in lines
    assert "  memory  not measured  no limit (optional)" in lines
    assert "  events  waived        waived because 'known'; judged FAIL: a spike" in lines
    assert f"next     python -m pilot resume '{root}'" in lines
    assert f"report   {root}/report.md" in lines
    assert "tracking http://h/#/experiments/1/runs/ab" in lines
    flat = " ".join(" ".join(lines).split())
    assert "remedy optim.learning_rate=0.001 (proven by arm lr x1/3)" in flat
    assert "cause data: row 5" in flat
    assert "cost 112 steps in 8.6s, all arms together = 2.33 x the baseline's 48; the" in flat
    assert "baseline is 12 % of the full run" in flat
    copyable = ("next", "report", "tracking")
    assert max(len(line) for line in lines if not line.startswith(copyable)) <= 80


def test_each_arm_is_one_line() -> None:
    early = effect(word="worse", value=0.31, half_width=0.06, basis="step loss", step=58)
    unknown = effect(word="not compared", value=None, half_width=None, level=None)
    rows = [
        arm_row("baseline", title="baseline", role="baseline", variable="", effect=None, words="",
                difference=None),
        arm_row(effect=effect(word="better", value=-0.05, half_width=0.02)),
        arm_row("x", title="lr x1/10", status="decided", num_own_steps=58, effect=early,
                value="0.0003"),
        arm_row("y", title="clip off", status="identical", num_own_steps=0, effect=unknown,
                difference=None, reason="never clipped: identical", value="null",
                variable="optim.max_grad_norm", baseline_value="1.0"),
    ]  # fmt: skip
    noise, margin = {"sentence": "sd 0.004 of 3 runs"}, {"sentence": "stable up to x 3"}
    saved = [{"arm": "lr x1/10", "num_steps": 116, "why": "decided at step 58: worse"},
             {"arm": "clip off", "num_steps": 174, "why": "never clipped"}]  # fmt: skip
    cost = {"num_steps": 170, "secs": 9.0, "ratio": 3.54, "baseline_steps": 48, "saved": saved}
    lines = shown(verdict_blocks(verdict(arms=rows, noise=noise, margin=margin, cost=cost), Path()))
    (at,) = (n for n, line in enumerate(lines) if "difference, 95 %" in line)
    assert [cells(line) for line in lines[at : at + 5]] == [
        ["arm", "changed", "result", "difference, 95 %", "steps"],
        ["baseline", "the recipe", "reference", "-", "56"],
        ["lr x3", "0.003 -> 0.009", "better", "-0.05 ± 0.02", "56"],
        ["lr x1/10", "0.003 -> 0.0003", "worse, ended at 58", "+0.31 ± 0.06 *", "58"],
        ["clip off", "1.0 -> null", "identical", "-", "0"],
    ]
    assert lines[at + 5] == f"  {FOOTNOTE}"
    flat = " ".join(" ".join(lines[at + 6 :]).split())
    assert flat.startswith(
        "arm clip off: never clipped: identical margin stable up to x 3 noise sd 0.004 of 3 runs"
    )
    assert "cost 170 steps in 9.0s, all arms together = 3.54 x the baseline's 48; the" in flat
    assert (
        "saved 290 steps: lr x1/10 116 (decided at step 58: worse), clip off 174 (never clipped)"
        in flat
    )


@pytest.mark.parametrize("width", [80, 100])
def test_long_and_evil_arms_stay_inside(width: int) -> None:
    long = arm_row("z", title=f"{EVIL} " + "t" * 60, value="v" * 90, reason=EVIL, status="lost")
    lines = shown(verdict_blocks(verdict(arms=[long, arm_row()]), Path("d")))
    assert max(len(line) for line in lines if not line.startswith("next")) <= 80
    assert "\x1b" not in "".join(lines)


def test_a_judged_pilot_with_arms_of_every_ending_is_shown() -> None:
    given = judge(several_arms(), make_gates()).verdict
    text = "\n".join(shown(verdict_blocks(given, Path("d"))))
    for part in (
        "identical",
        "ended at 20",
        "diverged at 30",
        "not run",
        "clip off: never clipped",
    ):
        assert part in text


def test_verdicts_of_old_folders_are_shown() -> None:
    old = {"verdict": "GO", "arms": [{"name": "lr_x1_3", "status": "completed"}], "cost": {}}
    lines = shown(verdict_blocks(old, Path("d")))
    assert "  lr x1 3  -        completed  -               0" in lines
    assert shown(verdict_blocks({}, Path("d")))[1] == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((0, 400, 0.12, False), "12 % of the full run's 400"),
        ((0, 150, 1.0, True), "all of the full run's 150"),
        ((50, 150, 1.0, True), "all 100 that are left of the full run's 150"),
        ((50, 1050, 0.1, False), "10 % of the 1000 that are left of the full run's 1050"),
    ],
)
def test_how_much_of_the_full_run_it_is(given: tuple[int, int, float, bool], words: str) -> None:
    assert share_text(*given) == words
