from __future__ import annotations

import dataclasses
import io
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pilot.folder import Job, PilotFolder
from pilot.judge import judge, load_gates
from pilot.records import Outcome
from pilot.report.terminal import Terminal, make_terminal
from tests.factories import build_view, make_step
from tests.report.parts import CLEAN_EVIL, EVIL, make_job


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


def test_each_running_arm_has_its_own_live_line() -> None:
    terminal, stream = _live()
    baseline, lower = _job(), make_job("lr_x1_3", title="lr x1/3")
    terminal.arm_started(baseline, 56)
    terminal.arm_started(lower, 44)
    terminal.arm_progress(baseline, "train", make_step(9), 1.0)
    terminal.arm_progress(lower, "train", make_step(7), 1.0)
    last = stream.getvalue().split("\x1b[1A")[-1]
    assert "lr x1/3" in last and "7/44 loss 3 grad 0.5" in last
    assert "9/56 loss 3 grad 0.5" in stream.getvalue().split("lr x1/3")[-2]
    decided = Outcome(status=Outcome.DECIDED, last_step=20, message="worse")
    terminal.arm_finished(lower, decided, 4.0)
    rest = stream.getvalue().partition("lr x1/3 ended at step 20: decided (worse) (4.0s)")[2]
    assert "9/56 loss 3" in rest and "lr x1/3" not in rest  # the other line is there again
    terminal.arm_finished(baseline, None, 5.0)
    assert stream.getvalue().endswith("see its log (5.0s)\x1b[0m\n")
    terminal.close()
    assert stream.getvalue().count("\x1b[?25h") == stream.getvalue().count("\x1b[?25l") == 2


def test_several_arms_off_a_terminal_are_told_apart() -> None:
    stream = io.StringIO()
    terminal = make_terminal(stream)
    jobs = [_job(), make_job("lr_x3", title="lr x3")]
    for job in jobs:
        terminal.arm_started(job, 56)
    for step in (1, 2, 3):
        for job in jobs:
            terminal.arm_progress(job, "train", make_step(step), elapsed_secs=8.0 * step)
    assert [line.split(" loss")[0] for line in stream.getvalue().splitlines()] == [
        "baseline started: 56 steps",
        "lr x3 started: 56 steps",
        "baseline 1/56",
        "lr x3 1/56",
        "baseline 3/56",
        "lr x3 3/56",
    ]


def test_a_forked_arm_counts_its_own_steps() -> None:
    stream = io.StringIO()
    terminal, job = make_terminal(stream), make_job("lr_x3", title="lr x3", fork_step=12)
    terminal.arm_started(job, 44)
    for step in range(13, 57):
        terminal.arm_progress(job, "train", make_step(step), elapsed_secs=0.1 * step)
    lines = stream.getvalue().splitlines()
    assert lines[1].startswith("lr x3 1/44 loss 3 ")
    assert lines[-1].startswith("lr x3 44/44 loss 3 ")
    assert len(lines) == 3


def test_an_arm_that_does_not_run_is_one_line_and_leaves_the_live_lines() -> None:
    stream = io.StringIO()
    make_terminal(stream).arm_not_run(make_job(title="clip off"), "never clipped:\nidentical")
    assert stream.getvalue() == "clip off: never clipped: identical\n"
    terminal, live = _live()
    terminal.arm_started(_job(), 56)
    terminal.arm_started(make_job(title="lr x3"), 56)
    terminal.arm_not_run(make_job(title="lr x3"), "killed 3 times")
    assert live.getvalue().count("lr x3: killed 3 times\n") == 1
    rest = live.getvalue().partition("lr x3: killed 3 times")[2]
    assert "baseline" in rest and "lr x3" not in rest
    terminal.close()


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (None, "baseline ended without a result: see its log (2.0s)"),
        (
            Outcome(status=Outcome.STOPPED, last_step=7),
            "baseline stopped at step 7: non-finite, going on would measure nothing (2.0s)",
        ),
        (
            Outcome(status=Outcome.DECIDED, last_step=20, message="worse"),
            "baseline ended at step 20: decided (worse) (2.0s)",
        ),
        (
            Outcome(status=Outcome.IDENTICAL, last_step=0, message="never clipped: identical"),
            "baseline identical to the baseline: never clipped (2.0s)",
        ),
        (
            Outcome(status=Outcome.IDENTICAL, last_step=0),
            "baseline identical to the baseline (2.0s)",
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
