"""What is said of the log itself: its steps, its end, what it lacks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pilot.diagnose.answer import state_title, summary
from pilot.diagnose.contract import event as as_json
from pilot.diagnose.limits import limits
from pilot.diagnose.numbers import bad_words
from pilot.diagnose.study import Study, studies
from pilot.series.types import Diagnosis, Series
from tests.diagnose.test_words import said
from tests.diagnose.traces import event, healthy_loss, trace, write_state

INF = float("inf")


def read_one(path: Path) -> Study:
    (found,) = studies([str(path)])
    return found


def lacks(study: Study) -> list[str]:
    assert study.trace is not None
    return [limit.lack for limit in limits(study.trace, study.diagnosis)]


def test_a_loss_of_0_that_was_found_is_no_open_question(tmp_path: Path) -> None:
    norms = [1.0] * 60 + [float("nan")] * 60
    path = write_state(tmp_path / "a.json", healthy_loss()[:60] + [0.0] * 60, grad_norm=norms)
    found = read_one(path)
    assert any(e.kind == "zero_loss" for e in found.diagnosis.events)
    assert "NaN may be logged as 0.0" not in lacks(found)
    assert "NaN may be logged as 0.0" in lacks(read_one(write_state(path, healthy_loss())))


def test_steps_that_cannot_be_used_are_not_called_absent(tmp_path: Path) -> None:
    rows = [{"step": k + 0.5, "loss": v} for k, v in enumerate(healthy_loss())]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_one(tmp_path / "a.jsonl")
    assert "no usable step numbers" in lacks(found)
    assert found.trace is not None
    assert "steps such as 119.5 are no whole numbers below 2^53: not used" in found.trace.notes
    assert summary(found).startswith("120 points of the loss (no step numbers), from ")


def test_gradient_norms_without_a_loss_are_not_too_short(tmp_path: Path) -> None:
    rows = [{"step": k, "loss": None, "grad_norm": 0.5 + k % 3 / 10} for k in range(200)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert state_title(read_one(tmp_path / "a.jsonl")) == "no loss in it"


def test_the_end_of_a_healthy_log_is_told(tmp_path: Path) -> None:
    rows = [repr({"loss": round(v, 4), "epoch": k / 100}) for k, v in enumerate(healthy_loss())]
    error = "Traceback (most recent call last):\n  x\ntorch.OutOfMemoryError: CUDA out of memory"
    (tmp_path / "a.log").write_text("\n".join([*rows, error]))
    found = read_one(tmp_path / "a.log")
    assert (found.diagnosis.state, found.diagnosis.alarm) == ("healthy", False)
    assert said(found).endswith(
        "the file ends with: torch.OutOfMemoryError: CUDA out of memory; the loss shows no trouble "
        "before it"
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([-INF, -INF], "-inf"),
        ([INF, -INF], "inf or -inf"),
        ([INF, float("nan")], "NaN or inf"),
        ([float("nan")], "NaN"),
    ],
)
def test_what_is_not_finite_has_its_sign(values: list[float], words: str) -> None:
    series = Series(steps=np.arange(len(values)), values=np.array(values))
    assert bad_words(series, event("nonfinite", 0, len(values))) == words


def test_no_negative_zero_in_json() -> None:
    row = as_json(event("no_progress", 1, 9, size_frac=-0.0))
    assert json.dumps(row["size_frac"]) == "0.0"


def test_an_empty_diagnosis_keeps_the_limit() -> None:
    made = trace(healthy_loss())
    found = limits(made, Diagnosis(state="healthy", alarm=False))
    assert "no gradient norm" in [limit.lack for limit in found]
