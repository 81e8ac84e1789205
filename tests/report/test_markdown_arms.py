from __future__ import annotations

from typing import Any

from pilot.judge import judge
from pilot.report.markdown import render
from pilot.report.markdown_arms import arms_section, cost_section, noise_limit
from tests.factories import make_gates
from tests.report.parts import EVIL, arm_row, effect, several_arms

BASELINE = {
    "name": "baseline", "title": "baseline", "role": "baseline", "variable": "",
    "baseline_value": "", "effect": None, "difference": None, "words": "",
}  # fmt: skip


def section(*rows: dict[str, Any], **keys: Any) -> str:
    return "\n".join(arms_section({"arms": list(rows), **keys}))


def test_an_arm_has_from_to_result_interval_examples_and_steps() -> None:
    found = effect(value=0.31, half_width=0.06, basis="step loss", step=118)
    early = arm_row("x", title="lr x1/10", status="decided", num_own_steps=18, value="0.0003",
                    difference=None, final_loss=None, effect=found)  # fmt: skip
    text = section(arm_row(**BASELINE), arm_row(), early, plan={"start_step": 100})
    assert text.splitlines()[:5] == [
        "| arm | changed | from | to | result | final validation | "
        "difference to the baseline (95 % interval) | n | steps |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| baseline | the recipe unchanged | - | - | reference | 2.1 | - | - | 56 |",
        "| lr x3 | optim.learning_rate | 0.003 | 0.009 | worse | 2.1 | +0.166 ± 0.0312 | 64 | 56 |",
        "| lr x1/10 | optim.learning_rate | 0.003 | 0.0003 | worse, ended at 118 | - | "
        "+0.31 ± 0.06 \\* | - | 18 |",
    ]
    assert "- \\* of the training loss, step by step; the others of the final validation" in text


def test_without_intervals_the_head_claims_none() -> None:
    text = section(arm_row(effect=None, words="larger loss, noise unknown"))
    assert "| final validation | difference | n | steps |" in text
    assert "| larger loss, noise unknown | 2.1 | +0.166 (SE 0.0037) | 64 | 56 |" in text
    assert "step by step" not in text


def test_reasons_followers_lineage_and_attempts_are_listed() -> None:
    row = arm_row(
        status="lost",
        reason="killed by a signal 3 times",
        follows={"optim.min_lr": "0.0009", "full_run.x": "1"},
        fork_step=12,
        num_attempts=3,
    )
    text = section(row, margin={"sentence": "stable up to learning_rate x 3"},
                   noise={"sentence": "sd 0.004 of 3 runs"})  # fmt: skip
    assert text.splitlines()[4:] == [
        "**Margin:** stable up to learning_rate x 3",
        "",
        "**Noise floor:** sd 0.004 of 3 runs",
        "",
        "- lr x3: killed by a signal 3 times",
        "- lr x3: follows by interpolation: optim.min_lr=0.0009, full_run.x=1",
        "- lr x3: starts from the baseline's state after step 12",
        "- lr x3: 3 attempts, joined",
        "",
        "![The curves of the baseline and its arms](figures/pilot.png)",
    ]


def test_the_cost_is_itemised() -> None:
    item = {"arm": "lr_x3", "num_steps": 56, "num_attempts": 2, "secs": 62.0}
    cost = {
        "num_steps": 168, "secs": 70.0, "ratio": 3.5, "baseline_steps": 48,
        "arms": [{**item, "secs_by_kind": {"step": 60.0, "validation": 2.0}}],
        "saved": [{"arm": "lr x1/10", "num_steps": 36, "why": "decided at step 20: worse"},
                  {"arm": "clip off", "num_steps": 56, "why": "never clipped: identical"}],
    }  # fmt: skip
    assert cost_section({"arms": [arm_row()], "cost": cost}) == [
        "168 optimizer steps, 1m10s of measured work. That is 3.5 x the 48 steps of the baseline "
        "without its cool-down.",
        "",
        "| arm | own steps | attempts | time | of which |",
        "| --- | --- | --- | --- | --- |",
        "| lr x3 | 56 | 2 | 1m02s | step 1m00s, validation 2.0s |",
        "",
        "92 steps were planned and not needed:",
        "",
        "- lr x1/10: 36 (decided at step 20: worse)",
        "- clip off: 56 (never clipped: identical)",
    ]


def test_old_verdicts_have_no_ratio_and_nothing_saved() -> None:
    old = {"arm": "lr_x1_3", "num_steps": 48, "secs": 2.0, "secs_by_kind": {}}
    cost = {"num_steps": 48, "secs": 2.0, "arms": [old]}
    assert cost_section({"cost": cost}) == [
        "48 optimizer steps, 2.0s of measured work.",
        "",
        "| arm | own steps | attempts | time | of which |",
        "| --- | --- | --- | --- | --- |",
        "| lr_x1_3 | 48 | - | 2.0s | - |",
    ]
    assert arms_section({}) == []
    assert "| lr x1 3 | - | - | - | completed | - | - | - | 0 |" in section(
        {"name": "lr_x1_3", "status": "completed"}
    )


def test_text_of_the_data_cannot_format_the_arms() -> None:
    evil = f"{EVIL} | <b> [x](http://evil) *y*\n## no"
    row = arm_row(title=evil, value=evil, baseline_value=evil, reason=evil, status="lost",
                  follows={"a": evil})  # fmt: skip
    text = section(row, margin={"sentence": evil}, noise={"sentence": evil})
    assert "<b>" not in text and "[x](" not in text and "http://" not in text
    assert "\x1b" not in text and "\n## " not in text
    bars = {line.replace("\\|", "").count("|") for line in text.splitlines() if line[:1] == "|"}
    assert bars == {10}


def test_what_a_floor_covers_is_said() -> None:
    for source in ("replicas", "stored"):
        text = noise_limit({"noise": {"source": source, "num_runs": 3}})
        assert text == "The noise between seeds is estimated from 3 runs of this recipe only."
    assert "noise between seeds was not measured" in noise_limit({"noise": {"source": "none"}})
    assert "noise between seeds was not measured" in noise_limit({})


def test_a_judged_pilot_with_arms_of_every_ending_is_reported() -> None:
    judged = judge(several_arms(), make_gates())
    text = render(judged.verdict, judged.result)
    assert "| clip off | optim.max_grad_norm | 1.0 | null | identical | 2 | 0 | 64 | 0 |" in text
    assert (
        "| lr x3 | optim.learning_rate | 0.003 | 0.009 | diverged at 30 | - | - | - | 30 |" in text
    )
    assert "- replica 2: arms.budget_steps = 300: 336 steps with it" in text
    assert "118 steps were planned and not needed:" in text
