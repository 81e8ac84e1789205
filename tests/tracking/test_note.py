from __future__ import annotations

from pathlib import Path
from typing import Any

from pilot.tracking.note import MAX_NOTE_CHARS, child_note, note

_GATES = [
    {"name": "finite", "need": "required", "status": "fail", "sentence": "not finite at step 3"},
    {"name": "memory", "need": "optional", "status": "not_measured", "sentence": "no limit known"},
]
_ARMS = [
    {
        "name": "baseline",
        "title": "baseline",
        "role": "baseline",
        "status": "completed",
        "num_steps": 48,
        "final_loss": 2.0,
        "difference": None,
    },
    {
        "name": "lr_x1_10",
        "title": "lr x1/10",
        "role": "arm",
        "variable": "optim.learning_rate",
        "value": "0.0001",
        "baseline_value": "0.001",
        "status": "completed",
        "num_steps": 48,
        "final_loss": 12.345678,
        "effect": {"word": "worse", "value": 10.3, "half_width": 0.5, "basis": "validation"},
    },
]


def _verdict(**changes: Any) -> dict[str, Any]:
    verdict = {
        "verdict": "NO-GO",
        "why": "loss is <b>not</b> finite",
        "next": "python -m pilot resume DIR",
        "gates": _GATES,
        "arms": _ARMS,
        "not_measured": ["events"],
        "warnings": [],
    }
    return {**verdict, **changes}


def _note(verdict: dict[str, Any], root: str = "d", figures: tuple[str, ...] = ()) -> str:
    return note(verdict, Path(root), experiment_id="3", run_id="r1", figures=figures)


def test_the_first_two_lines_carry_everything() -> None:
    lines = _note(_verdict(), "/runs/a b", ("figures/baseline.png",)).split("\n")
    assert lines[0] == "**NO-GO** — loss is &lt;b&gt;not&lt;/b&gt; finite  "
    assert lines[1] == (
        "**Next:** python -m pilot resume '/runs/a b' · [compare arms](#/experiments/3/runs"
        "?workflowType=machine_learning&compareRunsMode=CHART"
        "&searchFilter=tags.%60mlflow.parentRunId%60%20%3D%20%27r1%27"
        "&orderByKey=tags.%60pilot.order%60&orderByAsc=true)"
    )
    assert lines[3] == "```"
    assert lines[4:7] == [
        "gate    status        evidence",
        "finite  FAIL          not finite at step 3",
        "memory  not measured  no limit known (optional)",
    ]
    assert lines[-2] == "![baseline.png](get-artifact?path=figures/baseline.png&run_uuid=r1)"


def test_the_arms_are_an_aligned_table_of_numbers() -> None:
    lines = _note(_verdict()).split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("arm "))
    heads = ("final loss", "difference")
    ends = [lines[start].index(head) + len(head) for head in heads]
    numbers = [[line[:end].split()[-1] for end in ends] for line in lines[start + 1 : start + 3]]
    assert numbers == [["2.000", "-"], ["12.35", "0.5"]]
    assert lines[start + 2].startswith("lr x1/10  0.001 -> 0.0001  ")
    assert lines[start + 2].endswith("  +10.3 ± 0.5  worse")


def test_an_arm_that_did_not_end_says_why() -> None:
    lost = {**_ARMS[1], "status": "identical", "effect": {}, "reason": "never clipped: identical"}
    line = next(x for x in _note(_verdict(arms=[lost])).split("\n") if x.startswith("lr x1/10"))
    assert line.endswith("  identical (never clipped: identical)")


def test_text_cannot_break_out() -> None:
    gates = [{"name": "x", "need": "required", "status": "pass", "sentence": "```\n# boo"}]
    arms = [{**_ARMS[1], "title": "``` x", "value": "```"}]
    text = _note(_verdict(gates=gates, arms=arms, why="[a](http://x) `c`"))
    assert text.count("```") == 2
    assert r"\[a\](http://x) \`c\`" in text


def test_a_long_note_is_cut_with_the_block_closed_and_the_figure_kept() -> None:
    gates = [{**_GATES[0], "name": f"g{i}", "sentence": "y" * 500} for i in range(200)]
    text = _note(_verdict(gates=gates, why="w" * 3000), figures=("figures/a.png",))
    assert len(text) <= MAX_NOTE_CHARS
    assert text.count("```") == 2
    assert "more lines in report.md" in text
    assert text.endswith("![a.png](get-artifact?path=figures/a.png&run_uuid=r1)\n")
    assert max(map(len, text.split("```")[1].split("\n"))) == 106


def test_an_empty_verdict_still_gives_a_note() -> None:
    text = _note({"verdict": "INCONCLUSIVE"})
    assert text.startswith("**INCONCLUSIVE** — ")


def test_the_note_of_an_arm_leads_to_the_pilot() -> None:
    lines = child_note("lr x3: *diverged*", "GO · e4f5a6b", "3", "p1").split("\n")
    assert lines[0] == r"lr x3: \*diverged\*  "
    assert "[GO · e4f5a6b](#/experiments/3/runs/p1?workflowType=machine_learning)" in lines[1]
    assert "%27p1%27" in lines[1]
