"""The display of a running arm reads files that others write, and replace."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from pilot.folder import ArmFolder, Job
from pilot.jsonl import to_json
from pilot.launchers.progress import Progress
from pilot.records import StepRecord
from pilot.report.terminal import make_terminal
from tests.factories import LOWER, build_view, make_step


@pytest.fixture
def job() -> Job:
    return build_view().arms[LOWER].job


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that were shown."""
    steps: list[int] = []
    monkeypatch.setattr(
        "pilot.report.terminal.Terminal.arm_progress",
        lambda self, job, phase, record, secs: steps.append(record.step),
    )
    return steps


def write(folder: ArmFolder, records: list[StepRecord], tail: str = "") -> None:
    lines = "".join(to_json(record) + "\n" for record in records)
    folder.steps(1).write_text(lines + tail, encoding="utf-8")


def test_new_records_once_and_a_torn_line_when_it_is_whole(
    tmp_path: Path, job: Job, seen: list[int]
) -> None:
    folder = ArmFolder(tmp_path)
    progress = Progress(job, folder, make_terminal(io.StringIO()))
    progress()
    assert seen == []
    third = to_json(make_step(3))
    write(folder, [make_step(1), make_step(2)], tail=third[:40])
    progress()
    progress()
    assert seen == [1, 2]
    write(folder, [make_step(1), make_step(2), make_step(3)])
    progress()
    assert seen == [1, 2, 3]


def test_an_arm_that_begins_again_in_a_file_of_the_same_name(
    tmp_path: Path, job: Job, seen: list[int]
) -> None:
    folder = ArmFolder(tmp_path)
    progress = Progress(job, folder, make_terminal(io.StringIO()))
    write(folder, [make_step(step) for step in (7, 8, 9)])
    progress()
    write(folder, [make_step(1)])  # shorter than what was read
    progress()
    assert seen == [7, 8, 9, 1]
    write(folder, [make_step(step, loss=2.0 + step / 7) for step in range(1, 30)])  # longer
    progress()
    assert seen[-1] == 29
