from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from pilot.errors import LogError
from pilot.readers.registry import read

RUN = "mlruns/0/abc"


def metric(path: Path, values: list[float], *, every: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{1628697792090 + 10 * i} {v} {every * i}\n" for i, v in enumerate(values)]
    path.write_text("".join(lines))


def test_one_metric_file(tmp_path: Path) -> None:
    metric(tmp_path / RUN / "metrics/loss", [3.0, 2.0, 1.0])
    (trace,) = read(tmp_path / RUN / "metrics/loss")
    assert (trace.format, trace.notes) == ("mlflow", ())
    assert trace.train["loss"].steps.tolist() == [0, 1, 2]


def test_the_folder_of_a_run(tmp_path: Path) -> None:
    metrics = tmp_path / RUN / "metrics"
    metric(metrics / "train/loss", [3.0, 2.0, 1.0])
    metric(metrics / "train/grad_norm", [1.0, 1.5, 2.0])
    metric(metrics / "eval/loss", [2.5, 2.0], every=2)
    metric(metrics / "system/cpu", [90.0] * 3)
    (trace,) = read(tmp_path / RUN)
    assert trace.train["loss"].values.tolist() == [3.0, 2.0, 1.0]
    assert trace.train["grad_norm"].steps.tolist() == [0, 1, 2]
    assert trace.validations[""].steps.tolist() == [0, 2]


def test_a_metric_that_is_no_loss(tmp_path: Path) -> None:
    metric(tmp_path / RUN / "metrics/accuracy", [0.5, 0.6])
    with pytest.raises(LogError, match="'accuracy' is no loss"):
        read(tmp_path / RUN / "metrics/accuracy")


def test_a_file_of_no_known_name_is_taken_as_a_loss_and_says_so(tmp_path: Path) -> None:
    metric(tmp_path / "copied.txt", [3.0, 2.0])
    (trace,) = read(tmp_path / "copied.txt")
    assert "taken as a training loss" in trace.notes[0]


@pytest.mark.slow
def test_a_run_of_a_tracking_store(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path}/m.db"
    client = MlflowClient(tracking_uri=uri)
    run_id = client.create_run(client.create_experiment("e")).info.run_id
    for step in range(3):
        client.log_metric(run_id, "train/loss", 3.0 - step, step=step)
        client.log_metric(run_id, "eval/loss", 3.5 - step, step=step)
    (trace,) = read(Path(f"mlflow:{run_id}"), tracking_uri=uri)
    assert trace.train["loss"].values.tolist() == [3.0, 2.0, 1.0]
    assert trace.validations[""].values.tolist() == [3.5, 2.5, 1.5]
    with pytest.raises(LogError, match="the run cannot be read"):
        read(Path("mlflow:0123456789"), tracking_uri=uri)


def test_a_store_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="there is no tracking store"):
        read(Path("mlflow:0123"), tracking_uri=f"sqlite:///{tmp_path}/none.db")
    assert list(tmp_path.iterdir()) == []


def test_without_a_store_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(LogError, match="here is neither mlflow.db nor mlruns"):
        read(Path("mlflow:0123"))
    with pytest.raises(LogError, match="there is no such folder: nowhere"):
        read(Path("mlflow:0123"), tracking_uri="nowhere")
    (tmp_path / "empty.db").touch()
    with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as base:
        base.execute("create table mine (a)")
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    for name in sizes:
        with pytest.raises(LogError, match="there is no tracking store"):
            read(Path("mlflow:0123"), tracking_uri=f"sqlite:///{name}")
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == sizes


def test_a_run_of_a_folder_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metric(tmp_path / RUN / "metrics/loss", [3.0, 2.0, 1.0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for uri in (None, "mlruns", f"file://{tmp_path}/mlruns"):
        (trace,) = read(Path("mlflow:abc"), tracking_uri=uri)
        assert trace.train["loss"].values.tolist() == [3.0, 2.0, 1.0]
    for run_id in ("abd", "*", ".."):
        with pytest.raises(LogError, match="there is no run .* in the folder mlruns"):
            read(Path(f"mlflow:{run_id}"), tracking_uri="mlruns")
