from __future__ import annotations

import dataclasses
import io
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pilot.folder import Job, PilotFolder
from pilot.jsonl import write_json
from pilot.judge import judge, load_gates
from pilot.records import Outcome
from pilot.report.terminal import Terminal, make_terminal
from pilot.report.words import clean, human_bytes, human_secs, number, one_line
from tests.factories import build_view, make_step

EVIL = "boom \x1b[31mred\x1b[0m \x1b]0;title\x07 [bold]x[/bold] \x00\u202e\udc80"
CLEAN_EVIL = "boom red  [bold]x[/bold] ?"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


def _job(arm: str = "baseline") -> Job:
    return dataclasses.replace(build_view().arms["baseline"].job, arm=arm)


def _live() -> tuple[Terminal, io.StringIO]:
    stream = io.StringIO()
    consoles = [
        Console(file=stream, force_terminal=True, width=80, markup=False, highlight=False)
        for _ in range(2)
    ]
    return Terminal(*consoles), stream


def _verdict(**changes: Any) -> dict[str, Any]:
    view = build_view()
    return {**judge(view, load_gates(view)).verdict, **changes}


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.2149, "3.21"), (1234.4, "1234"), (0.0, "0"), (1e60, "1.0e+60"), (-2e-5, "-2.0e-05"),
     (math.nan, "nan"), (-math.inf, "-inf"), (None, "-")],
)  # fmt: skip
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


def test_units() -> None:
    assert [human_secs(s) for s in (0.04, 9.96, 59.6, 62, 3600 * 2 + 300, math.nan, None)] == [
        "0.0s", "10s", "1m00s", "1m02s", "2h05m", "unknown", "unknown",
    ]  # fmt: skip
    assert [human_bytes(b) for b in (0, 999, 1000, 12_345_678, 98e9, 999_999, None)] == [
        "0 bytes", "999 bytes", "1 kB", "12.3 MB", "98 GB", "1 MB", "unknown",
    ]  # fmt: skip


def test_foreign_text_is_harmless() -> None:
    assert clean(EVIL) == CLEAN_EVIL
    assert clean("a\tb\r\nc\rd") == "a\tb\ncd"
    assert one_line("  a\n\n b\tc ") == "a b c"
    assert one_line("abcdefgh", 6) == "abc..."


def test_results_and_logs_go_to_different_streams(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = make_terminal()
    terminal.say("a [result] in /a/long/path/" + "x" * 100)
    terminal.warn(EVIL)
    captured = capsys.readouterr()
    assert captured.out == "a [result] in /a/long/path/" + "x" * 100 + "\n"
    assert captured.err == f"warning: {CLEAN_EVIL}\n"


def test_a_stream_in_an_old_locale_does_not_crash() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    terminal = make_terminal(stream)
    terminal.say("größer → 中")
    terminal.verdict(_verdict(why="größer → 中"), Path("d"))
    stream.flush()
    assert raw.getvalue().startswith(b"gr??er ? ?\n")


def test_the_plan_fits_into_eighty_columns() -> None:
    view = build_view(config={"recipe__name": "synthetic"})
    stream = io.StringIO()
    warnings = (f"a very long warning {EVIL} " + "word " * 30,)
    make_terminal(stream).plan(dataclasses.replace(view.plan, warnings=warnings), view.survey)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "plan for synthetic: 48 steps of the full run's 400 (12 % of it)"
    text = " ".join(stream.getvalue().split())
    for part in (
        "warm-up 1-12 12 0 to 2.75e-03",
        "cool-down 49-56 8 2.67e-03 to 3.33e-04 (a branch)",
        "validation after step: before 0, warmup end 12, peak end 48, cooldown end 56",
        "held_out 64 rows, decides; other 64 rows",
        "12 MB each, 36 MB an arm",
        "8 rows a step, 448 rows needed of 480; sources: code, prose, rare",
        "for the baseline and 1 arm",
        "not measured events (spikes, trends)",
        CLEAN_EVIL.replace("  ", " "),
    ):
        assert part in text
    assert "\x1b" not in stream.getvalue()


def test_progress_off_a_terminal_is_a_line_now_and_then() -> None:
    stream = io.StringIO()
    terminal, job = make_terminal(stream), _job()
    terminal.arm_started(job, 56)
    for step in range(1, 57):
        phase = "train" if step <= 48 else "cool-down"
        record = make_step(step, loss=3.214, grad_norm=1.9, learning_rate=1e-3)
        terminal.arm_progress(job, phase, record, elapsed_secs=5.0 + 0.5 * step)
    terminal.arm_finished(job, Outcome(status=Outcome.COMPLETED, last_step=56), 33.0)
    assert stream.getvalue().splitlines() == [
        "baseline started: 56 steps",
        "baseline 1/56 loss 3.21 grad 1.9 lr 1.0e-03",
        "baseline 21/56 loss 3.21 grad 1.9 lr 1.0e-03 2 steps/s ETA 18s",
        "baseline 41/56 loss 3.21 grad 1.9 lr 1.0e-03 2 steps/s ETA 7.5s",
        "baseline cool-down 56/56 loss 3.21 grad 1.9 lr 1.0e-03 2 steps/s ETA 0.0s",
        "baseline completed at step 56 (33s)",
    ]


def test_a_non_finite_step_is_said_at_once_and_once() -> None:
    stream = io.StringIO()
    terminal, job = make_terminal(stream), _job()
    for step in (1, 2, 3, 4):
        broken = step >= 3
        record = make_step(
            step,
            loss=math.nan if broken else 3.0,
            grad_norm=math.inf if broken else 1.0,
            finite_loss=not broken,
            finite_params=not broken,
        )
        terminal.arm_progress(job, "train", record, elapsed_secs=float(step))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("baseline 3/48 loss nan grad inf weights non-finite")


def test_one_live_line_on_a_terminal_that_text_does_not_tear() -> None:
    terminal, stream = _live()
    terminal.arm_started(_job(), 56)
    terminal.arm_progress(_job(), "train", make_step(5), 1.0)
    assert "baseline" in stream.getvalue() and "5/56 loss 3 grad 0.5" in stream.getvalue()
    assert "\x1b[?25l" in stream.getvalue()  # the cursor is hidden while the line lives
    terminal.say("between")
    before, _, after = stream.getvalue().partition("between")
    assert before.endswith("\x1b[2K") or "\x1b[?25h" in before
    assert after == "\n"
    terminal.arm_progress(_job(), "train", make_step(6), 2.0)
    terminal.close()
    terminal.close()
    assert stream.getvalue().count("\x1b[?25h") == stream.getvalue().count("\x1b[?25l") == 2


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (None, "baseline ended without a result: see its log (2.0s)"),
        (
            Outcome(status=Outcome.STOPPED, last_step=7),
            "baseline stopped at step 7: non-finite, going on would measure nothing (2.0s)",
        ),
        (
            Outcome(status=Outcome.EXCEPTION, last_step=2, where="forward", step=3,
                    error_type="ValueError", message=EVIL),
            f"baseline ended by exception in forward at step 3: ValueError: "
            f"{' '.join(CLEAN_EVIL.split())} (2.0s)",
        ),
        (
            Outcome(status=Outcome.OUT_OF_MEMORY, last_step=0, where="backward",
                    error_type="OutOfMemoryError", message="CUDA"),
            "baseline ended by out of memory in backward: OutOfMemoryError: CUDA (2.0s)",
        ),
    ],
)  # fmt: skip
def test_how_an_arm_ended(outcome: Outcome | None, text: str) -> None:
    stream = io.StringIO()
    make_terminal(stream).arm_finished(_job(), outcome, 2.0)
    assert stream.getvalue() == text + "\n"


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
    verdict = _verdict(
        verdict="NO-GO",
        why="w " * 60,
        next="python -m pilot resume DIR",
        gates=gates,
        cause={"category": "data", "sentence": "row 5"},
        remedy={"override": "optim.learning_rate=0.001", "status": "proven by arm lr x1/3"},
    )
    stream = io.StringIO()
    make_terminal(stream).verdict(verdict, root)
    text = stream.getvalue()
    lines = text.splitlines()
    assert lines[1].startswith("NO-GO  w w w")
    assert "  finite  FAIL          bad boom red [bold]x[/bold] ?" in lines
    assert "  memory  not measured  no limit (optional)" in lines
    assert "  events  waived        waived because 'known'; judged FAIL: a spike" in lines
    assert f"next     python -m pilot resume '{root}'" in lines
    assert f"report   {root}/report.md" in lines
    assert "tracking http://h/#/experiments/1/runs/ab" in lines
    flat = " ".join(text.split())
    assert "remedy optim.learning_rate=0.001 (proven by arm lr x1/3)" in flat
    assert "cause data: row 5" in flat
    assert "lr x1/3: completed, 48 steps, optim.learning_rate=0.001" in flat
    assert "cost 112 steps in 8.6s, all arms together; the baseline is 12 % of the full run" in flat
    assert "\x1b" not in text
    copyable = ("next", "report", "tracking")
    assert max(len(line) for line in lines if not line.startswith(copyable)) <= 80


def test_no_colour_when_asked_and_words_with_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, stream = _live()
    terminal.verdict(_verdict(), Path("d"))
    assert "\x1b[1;32mGO" in stream.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    terminal, stream = _live()
    terminal.verdict(_verdict(), Path("d"))
    assert "GO" in stream.getvalue() and "32m" not in stream.getvalue()


def test_a_damaged_tracking_file_does_not_hide_the_verdict(tmp_path: Path) -> None:
    PilotFolder(tmp_path).tracking.write_text("{")
    stream = io.StringIO()
    make_terminal(stream).verdict(_verdict(), tmp_path)
    assert "GO" in stream.getvalue() and "tracking " not in stream.getvalue()
