"""Snapshot, a new process, restore: the next 20 steps are the undisturbed run's, bit for bit.

The states go through pilot's own files. What a Trainer keeps for itself beyond its weights,
optimizer, schedule and random states is not in them: workers that outlive an epoch
(``dataloader_persistent_workers``) with a collator that draws, an optimizer or a callback with a
generator of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pilot.jsonl import to_json
from tests.conftest import environment
from tests.engines.resume_cases import CASES, NEXT, undisturbed

QUICK = ("trainer", "random_collator", "sft")
SLOW = tuple(case for case in CASES if case not in QUICK)


def assert_goes_on(folder: Path, cases: tuple[str, ...], kept: tuple[int, ...]) -> None:
    """One new process resumes all of ``cases`` from all of ``kept``."""
    expected = {case: undisturbed(case, folder, kept) for case in cases}
    words = [word for case in cases for step in kept for word in (case, str(step))]
    subprocess.run(
        [sys.executable, "-m", "tests.engines.resume_cases", str(folder), *words],
        env=environment(),
        check=True,
        timeout=1800,
        stdout=subprocess.DEVNULL,
    )
    for case in cases:
        for step in kept:
            lines = (folder / f"{case}.{step}.jsonl").read_text().splitlines()
            wanted = [to_json(record) for record in expected[case][step : step + NEXT]]
            assert lines == wanted and len(lines) == NEXT, (case, step)


def test_within_an_epoch(tmp_path: Path) -> None:
    assert_goes_on(tmp_path, QUICK, (8,))


@pytest.mark.slow
def test_at_the_ends_of_epochs(tmp_path: Path) -> None:
    assert_goes_on(tmp_path, QUICK, (7, 9))


@pytest.mark.slow
def test_every_kind_of_trainer(tmp_path: Path) -> None:
    assert_goes_on(tmp_path, SLOW, (7, 8, 9))
