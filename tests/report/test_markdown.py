from __future__ import annotations

import math

import pytest

from pilot.judge import judge
from pilot.records import Outcome
from pilot.report.markdown import render
from pilot.report.markdown_text import escape, escape_block
from tests.factories import build_view, make_gates, with_baseline, without_arm


def report(**parts: object) -> str:
    result = judge(build_view(**parts), make_gates())  # type: ignore[arg-type]
    return render(result.verdict, result.result)


def test_the_first_lines_carry_everything() -> None:
    lines = report().splitlines()
    assert lines[:2] == ["# GO", ""]
    assert lines[2].startswith("10 gates passed; held_out 3 before step 1, 2 after")
    assert lines[4].startswith("**Next:** start the full run") and lines[3] == lines[5] == ""


def test_sections_and_tables() -> None:
    text = report()
    heads = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert heads == [
        "Gates", "Coverage", "Arms", "Validations", "Cost", "Warnings", "Not measured",
        "What this verdict does not mean",
    ]  # fmt: skip
    assert "| rare | 10 | 2.08 % | 2.08 % | 8 |" in text
    assert "| warm-up | 1 to 12 | 12 | 12 |" in text
    assert "| baseline | held_out (decides) | after the cool-down |" not in text
    assert (
        "| baseline | held_out (decides) | cooldown end | 56 | 2 | -1 (SE 0.0031, n 64) | 64 |"
        in text
    )
    assert "112 optimizer steps, 8.6s of measured work." in text
    assert "not measured | optional | this version has no check for it" in text
    assert text.endswith("pilot verify compares.\n")
    assert "112 optimizer steps, 8.6s of measured work. That is 2.33 x the 48 steps of" in text
    assert "| lr x1/3 | 56 | 1 | 4.3s | checkpoint 0.1s, start 1.0s, step 2.8s" in text
    assert "| baseline | the recipe unchanged | - | - | reference | 2 | - | - | 56 |" in text
    assert "![The curves of the baseline and its arms](figures/pilot.png)\n\n## Val" in text
    assert "| all 20 trainable tensors that got a gradient moved | at most 1 % of" in text
    assert "| this version has no check for it |  |" in text
    assert "no exception, memory suffices, an outcome exists (an exception of" in text


def test_every_table_row_has_the_columns_of_its_head() -> None:
    def cells(line: str) -> int:
        return line.replace("\\|", "").count("|")

    outcome = Outcome(status="exception", last_step=3, error_type="E", message="a | b | c\n| d")
    text = report(baseline={"last_step": 3, "outcome": outcome})
    width = 0
    for line in text.splitlines():
        if line.startswith("|"):
            width = width or cells(line)
            assert cells(line) == width, line
        else:
            width = 0


def test_cause_and_remedy_are_shown() -> None:
    text = report(baseline={"final": 2.9}, lower={"final": 2.0})
    assert text.startswith("# NO-GO\n\nprogress: learns too little")
    assert "**Cause:** undetermined. not replayed" in text
    assert "**Remedy** (proposed): optim.learning_rate=0.001" in text
    assert "| progress | FAIL | required |" in text


def test_a_waiver_shows_status_and_reason() -> None:
    result = judge(build_view(), make_gates(waive={"memory": "a larger card is *ordered*"}))
    text = render(result.verdict, result.result)
    assert "| memory | waived (not measured): a larger card is \\*ordered\\* |" in text


def test_text_of_exceptions_and_data_cannot_format_the_report() -> None:
    outcome = Outcome(
        status="exception", last_step=3, where="forward", error_type="ValueError",
        message="<script>alert(1)</script> [x](http://evil) \x1b[31mred\n# NO\n| a |",
    )  # fmt: skip
    text = report(baseline={"last_step": 3, "outcome": outcome})
    assert "<script>" not in text and "&lt;script&gt;" in text
    assert "[x](" not in text and "http://" not in text
    assert "\x1b" not in text
    assert "\n# NO" not in text and text.count("\n## ") == 8


def test_empty_and_non_finite_pilots_render() -> None:
    for view in (
        without_arm(without_arm(build_view(), "baseline"), "lr_x1_3"),
        with_baseline(build_view(), steps=(), cooldown=(), validations=(), resources=()),
        build_view(baseline={"final": math.nan}),
    ):
        result = judge(view, make_gates())
        text = render(result.verdict, result.result)
        assert text.splitlines()[0] == f"# {result.word}"
    assert "| nan |" in text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("optim.learning_rate=0.001", "optim.learning_rate=0.001"),
        ("_private_ a_b", "\\_private\\_ a_b"),
        (
            "*a* `b` [c] |d| ~e~ #f !g $h \\i",
            "\\*a\\* \\`b\\` \\[c\\] \\|d\\| \\~e\\~ \\#f \\!g \\$h \\\\i",
        ),
        ("a && b &lt; &#60; <b>", "a && b &amp;lt; &amp;\\#60; &lt;b&gt;"),
        ("two\nlines\t and", "two lines and"),
        ("see https://x.y and www.z.w a@b", "see https&#58;//x.y and www&#46;z.w a&#64;b"),
        ("", ""),
    ],
)
def test_escape(raw: str, shown: str) -> None:
    assert escape(raw) == shown


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("- item", "\\- item"),
        ("+1", "\\+1"),
        ("1. first", "1\\. first"),
        ("12) x", "12\\) x"),
        ("1.5 x", "1.5 x"),
        ("=== x", "\\=== x"),
        ("plain", "plain"),
    ],
)
def test_escape_block(raw: str, shown: str) -> None:
    assert escape_block(raw) == shown
