from __future__ import annotations

from pilot.checks.outcome import check
from pilot.checks.registry import CheckResult, absent_arm
from pilot.records import Outcome
from tests.factories import build_view, make_gates


def run(outcome: Outcome | None, last_step: int | None = None) -> CheckResult:
    view = build_view(baseline={"outcome": outcome, "last_step": last_step})
    assert view.baseline is not None
    return check(view, make_gates(), view.baseline)


def test_completed_passes() -> None:
    result = run(Outcome(status="completed", last_step=48))
    assert result.measured and result.findings == ()
    assert result.sentence == "completed: 48 steps, last step 48"


def test_exception_fails_with_place_step_rows_and_message() -> None:
    outcome = Outcome(
        status="exception", last_step=6, where="collate", step=7, row_ids=(5, 17),
        error_type="KeyError", message="'input_ids'\nat row [17]",
    )  # fmt: skip
    (finding,) = run(outcome, 6).findings
    assert (finding.severity, finding.category, finding.step) == ("fail", "implementation", 7)
    assert finding.sentence == (
        "the recipe raised in collate at step 7, rows 5, 17: KeyError: 'input_ids' at row [17]"
    )
    assert finding.numbers["row_ids"] == [5, 17]


def test_out_of_memory_fails_with_the_peak() -> None:
    outcome = Outcome(
        status="out_of_memory", last_step=0, where="backward", step=1, row_ids=(3,),
        error_type="OutOfMemoryError", message="CUDA out of memory", peak_memory_bytes=3 * 2**30,
    )  # fmt: skip
    (finding,) = run(outcome, 0).findings
    assert (finding.severity, finding.category) == ("fail", "memory")
    assert "in backward at step 1, row 3, peak memory 3 GiB" in finding.sentence
    assert "micro_batch_size" in finding.todo


def test_stopped_is_left_to_finite() -> None:
    result = run(Outcome(status="stopped", last_step=9), 9)
    assert result.measured and result.findings == () and "see finite" in result.sentence


def test_lost_is_undetermined() -> None:
    (finding,) = run(None, 20).findings
    assert finding.severity == "undetermined" and "after step 20" in finding.sentence
    assert finding.todo == "python -m pilot resume DIR"


def test_never_run_is_undetermined() -> None:
    view = build_view()
    (finding,) = check(view, make_gates(), absent_arm(view)).findings
    assert finding.severity == "undetermined" and "0 attempts" in finding.sentence


def test_unknown_status_is_undetermined() -> None:
    (finding,) = run(Outcome(status="paused", last_step=9)).findings
    assert finding.severity == "undetermined" and "'paused'" in finding.sentence


def test_long_messages_are_cut() -> None:
    outcome = Outcome(status="exception", last_step=0, error_type="E", message="x" * 5000)
    assert len(run(outcome, 0).sentence) < 400
    exact = Outcome(status="exception", last_step=0, error_type="E", message="x" * 300)
    assert run(exact, 0).sentence.endswith("x" * 300)
    over = Outcome(status="exception", last_step=0, error_type="E", message="x" * 301)
    assert run(over, 0).sentence.endswith("x" * 297 + "...")
