"""What the recorder knows of the steps before it: of an earlier attempt, or before a fork."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pilot.engines.recorder import Recorder
from pilot.folder import ArmFolder
from pilot.jsonl import read_jsonl
from pilot.records import Evidence, Resource, StepRecord
from tests.factory_parts import make_step


@pytest.fixture
def folder(tmp_path: Path) -> ArmFolder:
    return ArmFolder(tmp_path)


def skipped(step: int) -> StepRecord:
    return make_step(step, loss_scale=1.0, step_skipped=True, finite_grads=False)


def play(recorder: Recorder, *records: StepRecord) -> Recorder:
    for record in records:
        recorder.on_step(record, Resource(kind="step", step=record.step, secs=0.1))
    recorder.close()
    return recorder


@pytest.mark.parametrize(("earlier", "stops"), [(18, False), (20, True)])
def test_skips_in_a_row_go_on_over_a_fork_or_a_restart(
    folder: ArmFolder, earlier: int, stops: bool
) -> None:
    recorder = Recorder(folder, 1)
    recorder.go_on(earlier, [skipped(step) for step in range(1, earlier + 1)])
    play(recorder, skipped(earlier + 1))
    assert bool(recorder.stop_reason) is stops


def test_records_after_the_resumed_step_do_not_count(folder: ArmFolder) -> None:
    recorder = Recorder(folder, 1)
    recorder.go_on(3, [make_step(1), make_step(2), make_step(3), *map(skipped, range(4, 30))])
    play(recorder, skipped(4))
    assert recorder.stop_reason == ""
    assert recorder.last_step == 4


def test_before_the_first_record_the_last_step_is_the_start(folder: ArmFolder) -> None:
    recorder = Recorder(folder, 1, start_step=500)
    recorder.close()
    assert recorder.last_step == 500


@pytest.mark.parametrize("same", [True, False])
def test_a_resumed_stream_is_compared_with_what_was_done(folder: ArmFolder, same: bool) -> None:
    """Steps behind the state were done by the killed attempt: their rows have a hash."""

    def streamed(step: int, row_hash: str) -> StepRecord:
        return dataclasses.replace(make_step(step), row_ids=(), row_hash=row_hash)

    recorder = Recorder(folder, 2)
    recorder.go_on(4, [streamed(step, f"h{step}") for step in range(1, 7)])
    play(recorder, *(streamed(step, f"h{step}" if same else "other") for step in (5, 6)))
    (found,) = read_jsonl(folder.evidence, Evidence)
    assert (found.experiment, found.step) == ("resumed_stream", 5)
    assert found.values == {"same_rows": same}


def test_rows_with_ids_need_no_comparison(folder: ArmFolder) -> None:
    recorder = Recorder(folder, 2)
    recorder.go_on(4, [make_step(step) for step in range(1, 7)])
    play(recorder, make_step(5))
    assert list(read_jsonl(folder.evidence, Evidence)) == []
