from __future__ import annotations

from pathlib import Path
from typing import Any

from pilot.tracking.note import MAX_NOTE_CHARS, note

_GATES = [
    {"name": "finite", "need": "required", "status": "fail", "sentence": "not finite at step 3"},
    {"name": "memory", "need": "optional", "status": "not_measured", "sentence": "no limit known"},
]


def _verdict(**changes: Any) -> dict[str, Any]:
    verdict = {
        "verdict": "NO-GO",
        "why": "loss is <b>not</b> finite",
        "next": "python -m pilot resume DIR",
        "gates": _GATES,
        "arms": [{"sentence": "lr x1/3: completed, 48 steps"}],
        "not_measured": ["events"],
        "warnings": [],
    }
    return {**verdict, **changes}


def test_the_first_two_lines_carry_everything() -> None:
    lines = note(_verdict(), "r1", ["figures/baseline.png"], Path("/runs/a b")).split("\n")
    assert lines[0] == "**NO-GO** — loss is &lt;b&gt;not&lt;/b&gt; finite  "
    assert lines[1] == "**Next:** python -m pilot resume '/runs/a b'"
    assert lines[3] == "```"
    assert lines[4:7] == [
        "gate    status        evidence",
        "finite  FAIL          not finite at step 3",
        "memory  not measured  no limit known (optional)",
    ]
    assert "arm           lr x1/3: completed, 48 steps" in lines
    assert lines[-2] == "![baseline.png](get-artifact?path=figures/baseline.png&run_uuid=r1)"


def test_text_cannot_break_out() -> None:
    gates = [{"name": "x", "need": "required", "status": "pass", "sentence": "```\n# boo"}]
    text = note(_verdict(gates=gates, why="[a](http://x) `c`"), "r", [], Path("d"))
    assert text.count("```") == 2
    assert r"\[a\](http://x) \`c\`" in text


def test_a_long_note_is_cut_with_the_block_closed_and_the_figure_kept() -> None:
    gates = [{**_GATES[0], "name": f"g{i}", "sentence": "y" * 500} for i in range(200)]
    text = note(_verdict(gates=gates, why="w" * 3000), "r", ["figures/a.png"], Path("d"))
    assert len(text) <= MAX_NOTE_CHARS
    assert text.count("```") == 2
    assert "more lines in report.md" in text
    assert text.endswith("![a.png](get-artifact?path=figures/a.png&run_uuid=r)\n")


def test_an_empty_verdict_still_gives_a_note() -> None:
    text = note({"verdict": "INCONCLUSIVE"}, "r", [], Path("d"))
    assert text.startswith("**INCONCLUSIVE** — ")
