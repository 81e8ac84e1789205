"""Records that begin at step 18,001: the same events and gates as from step 1."""

from __future__ import annotations

import random

import pytest

from pilot.records import StepRecord
from pilot.restored import Part, Restored, lost_lines, start_lines
from pilot.watching import watch
from tests.trees import step_record


def records(first: int, kind: str) -> list[StepRecord]:
    """160 steps of a falling loss with a fault of ``kind`` in the middle."""
    rng, found = random.Random(0), []
    for index in range(160):
        loss, norm = 3.0 - 0.005 * index + 0.05 * rng.gauss(0, 1), 1.0 + 0.1 * rng.gauss(0, 1)
        if kind == "diverges" and index >= 60:
            loss, norm = loss + 0.05 * (index - 60), 3 * norm
        if (kind == "spike" and index == 80) or (kind == "spikes" and index in (80, 81, 82, 90)):
            loss, norm = loss + 5, 50.0
        if kind == "jump" and index >= 80:
            loss, norm = loss + 2, 5.0
        found.append(step_record(first + index, loss=loss, grad_norm=norm))
    return found


@pytest.mark.parametrize("kind", ["none", "diverges", "spike", "spikes", "jump"])
def test_events_do_not_depend_on_the_first_step(kind: str) -> None:
    early, late = (watch(records(first, kind), "lm") for first in (1, 18_001))
    mine = [(e.kind, e.severity, e.first_step, e.last_step) for e in early.events]
    theirs = [(e.kind, e.severity, e.first_step, e.last_step) for e in late.events]
    assert [(k, s, a + 18_000, b + 18_000) for k, s, a, b in mine] == theirs
    assert early.has_open == late.has_open
    assert bool(mine) == (kind != "none")


def test_what_was_restored_in_lines() -> None:
    parts = (
        Part(name="weights", restored=True, why="model.safetensors"),
        Part(name="optimizer state", restored=False, why="fresh moments"),
    )
    values = Restored(source="checkpoint-7", step=7, parts=parts, notes=("a note",)).values()
    assert start_lines(7, values) == (
        "starts after step 7 from checkpoint-7: restored weights",
        "optimizer state not restored from checkpoint-7: fresh moments",
        "a note",
    )
    assert lost_lines(values) == ("optimizer state not restored from checkpoint-7: fresh moments",)
    nothing = Restored(source="c", step=7, parts=parts[1:]).values()
    assert start_lines(7, nothing)[0] == "starts after step 7 from c: nothing restored"
