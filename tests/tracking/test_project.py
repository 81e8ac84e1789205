"""Against a real SQLite store; every test has its own copy."""

from __future__ import annotations

import dataclasses
import json
import math
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from pilot.errors import ExitCode, FolderError
from pilot.folder import PilotFolder
from pilot.jsonl import write_json
from pilot.records import StepRecord
from pilot.tracking.project import project, sync
from pilot.tracking.store import absolute_uri, link
from tests.factories import build_view
from tests.tracking.conftest import MakePilot


def _client(path: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{path}")


def _runs(path: Path) -> list[Any]:
    client = _client(path)
    experiments = [e.experiment_id for e in client.search_experiments()]
    return list(client.search_runs(experiments))


def _points(path: Path, run_id: str) -> dict[str, list[tuple[int, float]]]:
    client = _client(path)
    names = client.get_run(run_id).data.metrics
    return {n: [(m.step, m.value) for m in client.get_metric_history(run_id, n)] for n in names}


def _late_nan(record: StepRecord) -> StepRecord:
    if record.step < 20:
        return record
    return dataclasses.replace(record, loss=math.nan, finite_loss=False)


def test_off_does_nothing(make_pilot: MakePilot) -> None:
    root = make_pilot(None)
    assert project(root).status == "off"
    assert not PilotFolder(root).tracking.exists()
    assert sync(root) == ExitCode.USAGE


def test_everything_arrives_once(make_pilot: MakePilot, store_copy: Path) -> None:
    root = make_pilot(f"sqlite:///{store_copy}", recipe={"hub_token": "letmein", "name": "r/x"})
    result = project(root)
    assert (result.status, result.lines) == ("sent", ())
    (run,) = _runs(store_copy)
    assert run.info.run_id == result.run_id and run.info.status == "FINISHED"
    assert run.data.tags["mlflow.runName"] == "GO · e4f5a6b"
    assert run.data.tags["mlflow.note.content"].startswith("**GO** — ")
    assert run.data.params["recipe.hub_token"] == "<hidden>"
    assert run.data.params["optim.learning_rate"] == "0.003"
    assert run.data.metrics["pilot/nonfinite_steps"] == 0
    assert len(run.data.metrics) < 30
    assert run.inputs.dataset_inputs[0].dataset.name == "synthetic"
    names = {f.path for f in _client(store_copy).list_artifacts(run.info.run_id, "arms/baseline")}
    assert "arms/baseline/steps.001.jsonl" in names
    location = Path(run.info.artifact_uri.removeprefix("file://"))
    assert location.is_relative_to(store_copy.parent)
    first = _points(store_copy, run.info.run_id)
    assert len(first["train/loss"]) == 48

    for _ in range(2):
        assert project(root).status == "sent"
    assert len(_runs(store_copy)) == 1
    assert _points(store_copy, run.info.run_id) == first


def test_a_lost_tracking_state_of_metrics_gives_no_duplicates(
    make_pilot: MakePilot, store_copy: Path
) -> None:
    """Killed after points arrived and before it was noted: they are sent again, and dropped."""
    root = make_pilot(f"sqlite:///{store_copy}")
    run_id = project(root).run_id
    first = _points(store_copy, run_id)
    path = PilotFolder(root).tracking
    state = json.loads(path.read_text())
    state.update(metrics={}, params_sent=False, dataset_sent=False, artifacts={}, status="partial")
    write_json(path, state)
    assert project(root).run_id == run_id
    assert _points(store_copy, run_id) == first


def test_no_go_is_finished_and_only_finite_values_are_sent(
    make_pilot: MakePilot, store_copy: Path
) -> None:
    view = build_view(baseline={"last_step": 21, "edit": _late_nan})
    run_id = project(make_pilot(f"sqlite:///{store_copy}", view)).run_id
    (run,) = _runs(store_copy)
    assert run.info.status == "FINISHED"
    assert run.data.tags["pilot.verdict"] == "NO-GO"
    assert run.data.tags["pilot.first_nonfinite_step"] == "20"
    assert run.data.tags["mlflow.runColor"] == "#d32f2f"
    points = _points(store_copy, run_id)
    assert points["pilot/nonfinite_steps"] == [(48, 2.0)]
    assert [step for step, _ in points["train/loss"]] == list(range(1, 20))
    assert all(math.isfinite(v) and abs(v) < 1e300 for p in points.values() for _, v in p)


def test_judged_again_updates_the_run(make_pilot: MakePilot, store_copy: Path) -> None:
    root = make_pilot(f"sqlite:///{store_copy}")
    run_id = project(root).run_id
    path = PilotFolder(root).verdict
    verdict = json.loads(path.read_text())
    verdict.update(verdict="INCONCLUSIVE", why="other gates")
    verdict["gates"][0]["status"] = "warn"
    write_json(path, verdict)
    assert project(root).run_id == run_id
    (run,) = _runs(store_copy)
    assert run.data.tags["pilot.verdict"] == "INCONCLUSIVE"
    assert run.info.run_name == "INCONCLUSIVE · e4f5a6b"
    warned = sum(gate["status"] == "warn" for gate in verdict["gates"])
    assert run.data.metrics["pilot/gates_warned"] == warned


def test_a_deleted_run_is_made_anew(make_pilot: MakePilot, store_copy: Path) -> None:
    root = make_pilot(f"sqlite:///{store_copy}")
    old = project(root).run_id
    _client(store_copy).delete_run(old)
    new = project(root).run_id
    assert new != old
    assert [run.info.run_id for run in _runs(store_copy)] == [new]
    assert len(_points(store_copy, new)["train/loss"]) == 48


def test_a_deleted_experiment_is_explained(make_pilot: MakePilot, store_copy: Path) -> None:
    root = make_pilot(f"sqlite:///{store_copy}")
    project(root)
    client = _client(store_copy)
    client.delete_experiment(client.get_experiment_by_name("pilot/synthetic").experiment_id)
    result = project(root)
    assert result.status == "failed"
    assert "was deleted in the store; restore it" in result.lines[0]


def test_a_relative_store_lies_where_the_pilot_was_started(
    make_pilot: MakePilot, store_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_pilot("sqlite:///outputs/mlflow.db")
    write_json(PilotFolder(root).start, {"cwd": str(store_copy.parent.parent)})
    assert sync(root) == ExitCode.GO
    assert len(_runs(store_copy)) == 1
    said = capsys.readouterr()
    assert f"mlflow ui --backend-store-uri sqlite:///{store_copy}" in said.out
    assert said.err == ""  # nothing of MLflow's own chatter


def test_an_unreachable_server_costs_seconds_and_nothing_else(
    make_pilot: MakePilot, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, not listening: the connection is refused
        port = held.getsockname()[1]
        root = make_pilot(f"http://bob:s3cr3t@127.0.0.1:{port}")
        started = time.monotonic()
        result = project(root)
        assert time.monotonic() - started < 10
        assert result.status == "failed"
        assert sync(root) == ExitCode.CRASH
    (line,) = result.lines
    assert line.startswith(f"tracking server http://<hidden>@127.0.0.1:{port} not reached: ")
    assert line.endswith(
        f"the pilot's result is complete in {root}; later: python -m pilot sync {root}"
    )
    assert "s3cr3t" not in capsys.readouterr().err
    assert not PilotFolder(root).tracking.exists()


@pytest.mark.parametrize(
    ("uri", "words"),
    [("sqlite://", "in memory"), ("sqlite:////proc/nothing/m.db", "/proc/nothing"), ("x://y", "x")],
)
def test_an_impossible_store_is_told_not_raised(
    make_pilot: MakePilot, uri: str, words: str
) -> None:
    result = project(make_pilot(uri))
    assert result.status == "failed"
    assert words in result.lines[0]


def test_sync_wants_a_judged_pilot(make_pilot: MakePilot, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="not a pilot"):
        sync(tmp_path)
    root = make_pilot(None)
    PilotFolder(root).verdict.unlink()
    with pytest.raises(FolderError, match="no verdict yet"):
        sync(root)


def test_addresses() -> None:
    start = Path("/start")
    assert absolute_uri("sqlite:///a/m.db?timeout=3", start) == "sqlite:////start/a/m.db?timeout=3"
    assert absolute_uri("sqlite:////b/m.db", start) == "sqlite:////b/m.db"
    assert absolute_uri("http://h:5000", start) == "http://h:5000"
    page = "/#/experiments/3/runs/ab?workflowType=machine_learning"
    assert link("https://u:p@h/ml/", "3", "ab") == f"https://h/ml{page}"
    assert link("sqlite:////a b/m.db", "3", "ab").startswith(
        "mlflow ui --backend-store-uri 'sqlite:////a b/m.db'"
    )
