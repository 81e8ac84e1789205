from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from pilot.readers import source
from pilot.readers.registry import read
from pilot.series.types import Trace

HISTORY = [
    {"epoch": 0.1, "grad_norm": 1.5, "learning_rate": 1e-4, "loss": 2.5, "step": 10},
    {"epoch": 0.2, "grad_norm": math.nan, "learning_rate": 9e-5, "loss": math.inf, "step": 20},
    {"epoch": 0.2, "eval_loss": 2.0, "eval_accuracy": 0.5, "eval_runtime": -3.0, "step": 20},
    {"epoch": 0.3, "grad_norm": 1.0, "learning_rate": 8e-5, "loss": 2.25, "step": 30},
    {"epoch": 0.3, "step": 30, "total_flos": 1e18, "train_loss": 9.0, "train_runtime": 60.0},
]
STATE = {"best_metric": None, "epoch": 0.3, "global_step": 30, "log_history": HISTORY}
STATE |= {"max_steps": 30, "stateful_callbacks": {"C": {"args": {}, "attributes": {"loss": 1}}}}


def one(path: Path, text: str) -> Trace:
    path.write_text(text, encoding="utf-8")
    (trace,) = read(path)
    return trace


@pytest.mark.parametrize("indent", [None, 2])
def test_trainer_state(tmp_path: Path, indent: int | None) -> None:
    trace = one(tmp_path / "trainer_state.json", json.dumps(STATE, indent=indent))
    assert (trace.format, trace.axis, trace.notes) == ("trainer_state", "steps", ())
    assert trace.train["loss"].steps.tolist() == [10, 20, 30]
    assert trace.train["loss"].values.tolist() == [2.5, math.inf, 2.25]
    assert math.isnan(trace.train["grad_norm"].values[1])
    assert trace.train["learning_rate"].values.tolist() == [1e-4, 9e-5, 8e-5]
    assert trace.validations[""].values.tolist() == [2.0] and len(trace.validations) == 1


def test_other_names_of_the_list(tmp_path: Path) -> None:
    text = json.dumps({"training_loss": 0.0, "training_history": HISTORY})
    trace = one(tmp_path / "a.json", text)
    assert trace.format == "trainer_state" and len(trace.train["loss"].steps) == 3


def test_a_bare_list(tmp_path: Path) -> None:
    trace = one(tmp_path / "a.json", json.dumps(HISTORY, indent=1))
    assert trace.format == "json" and trace.train["loss"].steps.tolist() == [10, 20, 30]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_truncated_file_gives_its_whole_records(tmp_path: Path, indent: int | None) -> None:
    text = json.dumps(STATE, indent=indent)
    cut = text.index("0.3", text.index("log_history"))
    trace = one(tmp_path / "trainer_state.json", text[: cut + 30])
    assert trace.train["loss"].steps.tolist() == [10, 20]
    assert "truncated" in trace.notes[0]


def test_a_damaged_record_in_the_middle(tmp_path: Path) -> None:
    text = json.dumps(STATE).replace('"loss": Infinity', '"loss": oops')
    trace = one(tmp_path / "trainer_state.json", text)
    assert trace.train["loss"].steps.tolist() == [10, 30]
    assert trace.notes == ("damaged records left out: 1",)


def test_columns_of_numbers(tmp_path: Path) -> None:
    text = json.dumps({"history": {"loss": [3.0, 2.0, 1.0], "val_loss": [3.5, 2.5, 2.0]}})
    trace = one(tmp_path / "history.json", text)
    assert trace.axis == "records" and trace.train["loss"].values.tolist() == [3.0, 2.0, 1.0]
    assert trace.validations[""].steps.tolist() == [1, 2, 3]


def test_records_deep_inside(tmp_path: Path) -> None:
    runs = [{"epoch": e, "train": {"loss": 3.0 - e}, "val": {"loss": 3.5 - e}} for e in range(3)]
    trace = one(
        tmp_path / "a.json", json.dumps({"args": {"lr": 1}, "out": {"log": runs}}, indent=1)
    )
    assert trace.train["loss"].values.tolist() == [3.0, 2.0, 1.0]
    assert trace.validations[""].values.tolist() == [3.5, 2.5, 1.5]


def test_a_reinforcement_log_is_known_by_its_keys(tmp_path: Path) -> None:
    rows = [{"step": i, "loss": -0.01, "reward": 0.5, "kl": 0.1} for i in range(3)]
    assert one(tmp_path / "a.json", json.dumps({"log_history": rows})).objective == "rl"


def test_records_over_the_ends_of_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(STATE, indent=2)
    for size in (50, 61, 333):
        monkeypatch.setattr(source, "CHUNK_BYTES", size)
        trace = one(tmp_path / "trainer_state.json", text)
        assert trace.train["loss"].steps.tolist() == [10, 20, 30] and trace.notes == ()


def test_a_bracket_in_a_damaged_record_does_not_end_the_list(tmp_path: Path) -> None:
    text = json.dumps(STATE).replace('"loss": Infinity', '"odd": [1, 2], "loss": oops')
    trace = one(tmp_path / "trainer_state.json", text)
    assert trace.train["loss"].steps.tolist() == [10, 30]


def test_a_part_of_a_trainer_state(tmp_path: Path) -> None:
    text = json.dumps(STATE, indent=2)
    trace = one(tmp_path / "pasted.txt", text[text.index('"grad_norm"') :])
    assert trace.train["loss"].steps.tolist() == [20, 30]
    assert "only whole records" in trace.notes[0]
