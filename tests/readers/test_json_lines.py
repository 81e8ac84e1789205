from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from pilot.readers.registry import read
from pilot.series.types import Trace


def one(path: Path, *records: object) -> Trace:
    path.write_text("".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in records))
    (trace,) = read(path)
    return trace


def row(step: int, **values: object) -> dict[str, object]:
    times = {"percentage": 1.0, "elapsed_time": "0:00:32", "remaining_time": "4 days, 5:06:09"}
    return {"current_steps": step, "total_steps": 40, **values, **times}


def test_trainer_log_with_nulls_and_a_final_line(tmp_path: Path) -> None:
    null = {"eval_loss": None, "predict_loss": None, "reward": None}
    trace = one(
        tmp_path / "trainer_log.jsonl",
        row(10, loss=2.5, learning_rate=1e-4, epoch=0.1, **null),
        row(20, loss=2.25, learning_rate=9e-5, epoch=0.2, **null),
        row(20, **{**null, "loss": None, "eval_loss": 2.0}, epoch=0.2),
        row(40, loss=None, learning_rate=None, epoch=0.4, **null),
    )
    assert (trace.format, trace.objective) == ("trainer_log", "unknown")
    assert trace.train["loss"].steps.tolist() == [10, 20]
    assert trace.train["learning_rate"].values.tolist() == [1e-4, 9e-5]
    assert trace.validations[""].steps.tolist() == [20]


@pytest.mark.parametrize(
    ("extra", "objective"), [({"accuracy": 0.5}, "preference"), ({"reward": 0.1}, "rl")]
)
def test_trainer_log_of_other_stages(
    tmp_path: Path, extra: dict[str, object], objective: str
) -> None:
    rows = [row(i, loss=0.69, lr=1e-6, **extra) for i in (1, 2, 3)]
    assert one(tmp_path / "a.jsonl", *rows).objective == objective


def test_events_nested_objects_and_odd_numbers(tmp_path: Path) -> None:
    trace = one(
        tmp_path / "log.jsonl",
        {"event": "config", "lr": 1e-4, "num_steps": 3, "max_grad_norm": 1.0},
        {"event": "step", "step": 1, "metrics": {"loss": "2.5", "grad_norm": "nan"}},
        '{"event": "step", "step": 2, "metrics": {"loss": NaN, "grad_norm": -Infinity}}\n',
        {"event": "eval", "step": 2, "eval": {"c4": {"loss": 2.0}, "pile": {"loss": 3.0}}},
        {"event": "step", "step": 3, "metrics": {"loss": "Infinity", "grad_norm": None}},
        {"event": "done", "num_steps": 3},
    )
    assert trace.format == "jsonl" and trace.train["loss"].steps.tolist() == [1, 2, 3]
    assert trace.train["loss"].values[0] == 2.5 and math.isnan(trace.train["loss"].values[1])
    assert trace.train["loss"].values[2] == math.inf
    assert trace.train["grad_norm"].values[1] == -math.inf
    assert {name: s.values[0] for name, s in trace.validations.items()} == {"c4": 2, "pile": 3}


def test_a_truncated_last_line_and_foreign_lines(tmp_path: Path) -> None:
    trace = one(
        tmp_path / "log.jsonl",
        {"step": 1, "loss": 2.0},
        "warning: something else\n",
        {"step": 2, "loss": 1.5},
        '{"step": 3, "lo',
    )
    assert trace.train["loss"].steps.tolist() == [1, 2]
    assert trace.notes == (
        "the last line is cut off: left out",
        "lines left out that are no JSON: 1",
    )


def test_wandb_history(tmp_path: Path) -> None:
    rows = [{"train/loss": 3.0 - i, "train/global_step": 10 * i, "_step": i} for i in range(3)]
    trace = one(tmp_path / "history.jsonl", *rows, {"eval/loss": 2.5, "train/global_step": 20})
    assert trace.train["loss"].steps.tolist() == [0, 10, 20]
    assert trace.validations[""].steps.tolist() == [20]
