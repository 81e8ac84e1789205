"""Against a real SQLite store; every test has its own copy."""

from __future__ import annotations

import dataclasses
import json
import math
import socket
import time
from pathlib import Path

import pytest

from pilot.errors import ExitCode, FolderError
from pilot.folder import PilotFolder
from pilot.jsonl import write_json
from pilot.records import StepRecord
from pilot.tracking import store
from pilot.tracking.project import project, sync
from tests.factories import build_view
from tests.tracking import stored
from tests.tracking.conftest import MakePilot
from tests.tracking.pilots import TITLES, five_arms


def _late_nan(record: StepRecord) -> StepRecord:
    if record.step < 20:
        return record
    return dataclasses.replace(record, loss=math.nan, finite_loss=False)


def test_off_does_nothing(make_pilot: MakePilot) -> None:
    root = make_pilot(None)
    assert project(root).status == "off"
    assert not PilotFolder(root).tracking.exists()
    assert sync(root) == ExitCode.USAGE


def test_a_parent_with_its_arms_arrives_once(make_pilot: MakePilot, store_copy: Path) -> None:
    secret = {"hub_token": "letmein", "name": "r/x"}
    root = make_pilot(f"sqlite:///{store_copy}", five_arms(), recipe=secret)
    result = project(root)
    assert (result.status, result.lines) == ("sent", ())
    parent, *children = stored.runs(store_copy)
    assert parent.info.run_id == result.run_id
    assert [child.info.run_name for child in children] == list(TITLES)
    assert {c.data.tags["mlflow.parentRunId"] for c in children} == {parent.info.run_id}
    started = [child.info.start_time for child in children]
    assert started == sorted(started, reverse=True)  # lists show the newest first
    assert [run.info.status for run in stored.runs(store_copy)] == ["FINISHED"] * 6
    assert {run.inputs.dataset_inputs[0].dataset.name for run in stored.runs(store_copy)} == {
        "synthetic"
    }
    assert {run.data.params["recipe.hub_token"] for run in stored.runs(store_copy)} == {"<hidden>"}
    assert {len(run.data.params) for run in stored.runs(store_copy)} == {len(parent.data.params)}
    assert f"%27{result.run_id}%27" in result.arms_link
    first = stored.content(store_copy)

    for _ in range(2):
        assert project(root).status == "sent"
    assert stored.content(store_copy) == first


def test_the_parent_has_the_verdict_and_no_series(make_pilot: MakePilot, store_copy: Path) -> None:
    root = make_pilot(f"sqlite:///{store_copy}", five_arms())
    project(root)
    parent = stored.runs(store_copy)[0]
    assert parent.data.tags["mlflow.runName"] == "GO · e4f5a6b"
    assert parent.data.tags["pilot.changed"] == "4 arms"
    note = parent.data.tags["mlflow.note.content"]
    assert note.startswith("**GO** — ") and len(note) < 8000
    assert f"run_uuid={parent.info.run_id}" in note
    points = stored.points(store_copy, parent.info.run_id)
    assert {step for found in points.values() for step, _ in found} == {0}
    assert points["pilot/nonfinite_steps"] == [(0, 0.0)]
    names = set(stored.files(store_copy, parent.info.run_id))
    assert {"verdict.json", "report.md", "figures/baseline.png"} <= names
    assert {"arms/clip_off/steps.001.jsonl", "arms/lr_x3/lineage.json"} <= names
    location = Path(parent.info.artifact_uri.removeprefix("file://"))
    assert location.is_relative_to(store_copy.parent)


def test_each_arm_has_its_curves_and_the_value_that_it_changed(
    make_pilot: MakePilot, store_copy: Path
) -> None:
    project(make_pilot(f"sqlite:///{store_copy}", five_arms()))
    _, baseline, lower, clip_off, _, higher = stored.runs(store_copy)
    rates = [run.data.params["optim.learning_rate"] for run in (baseline, lower, higher)]
    assert rates == ["0.003", "0.001", "0.009"]
    assert clip_off.data.params["optim.max_grad_norm"] == "null"
    joined = stored.points(store_copy, clip_off.info.run_id)
    assert [step for step, _ in joined["train/loss"]] == list(range(1, 49))
    assert (
        joined["train/loss"][:20]
        == stored.points(store_copy, baseline.info.run_id)["train/loss"][:20]
    )
    assert higher.data.tags["pilot.first_nonfinite_step"] == "31"
    assert higher.data.metrics["pilot/nonfinite_steps"] == 2
    assert len(higher.data.metrics) < 30
    assert not list(stored.files(store_copy, higher.info.run_id))


def test_the_experiment_explains_itself_until_a_person_does(
    make_pilot: MakePilot, store_copy: Path
) -> None:
    root = make_pilot(f"sqlite:///{store_copy}")
    project(root)
    client = stored.client(store_copy)
    tags = client.get_experiment_by_name("pilot/synthetic").tags
    assert tags["mlflow.note.content"].startswith("One row per `python -m pilot`")
    assert json.loads(tags["mlflow.sharedViewState.pilot-verdicts"])["name"] == "Pilot verdicts"
    experiment_id = client.get_experiment_by_name("pilot/synthetic").experiment_id
    client.set_experiment_tag(experiment_id, "mlflow.note.content", "mine")
    project(root)
    assert client.get_experiment(experiment_id).tags["mlflow.note.content"] == "mine"


def test_no_go_is_finished_and_only_finite_values_are_sent(
    make_pilot: MakePilot, store_copy: Path
) -> None:
    view = build_view(baseline={"last_step": 21, "edit": _late_nan})
    project(make_pilot(f"sqlite:///{store_copy}", view))
    parent, baseline, _ = stored.runs(store_copy)
    assert (parent.info.status, baseline.info.status) == ("FINISHED", "FINISHED")
    assert parent.data.tags["pilot.verdict"] == "NO-GO"
    assert baseline.data.tags["pilot.verdict"] == "NO-GO"
    assert parent.data.tags["pilot.first_nonfinite_step"] == "20"
    assert parent.data.tags["mlflow.runColor"] == "#d32f2f"
    assert parent.data.metrics["pilot/nonfinite_steps"] == 2.0
    points = stored.points(store_copy, baseline.info.run_id)
    assert [step for step, _ in points["train/loss"]] == list(range(1, 20))
    assert all(math.isfinite(v) and abs(v) < 1e300 for p in points.values() for _, v in p)


def test_a_deleted_experiment_is_explained(make_pilot: MakePilot, store_copy: Path) -> None:
    root = make_pilot(f"sqlite:///{store_copy}")
    project(root)
    client = stored.client(store_copy)
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
    assert len(stored.runs(store_copy)) == 3
    said = capsys.readouterr()
    assert f"mlflow ui --backend-store-uri sqlite:///{store_copy}" in said.out
    assert "arms: http://127.0.0.1:5000/#/experiments/" in said.out
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
    absolute = store.absolute_uri
    assert absolute("sqlite:///a/m.db?timeout=3", start) == "sqlite:////start/a/m.db?timeout=3"
    assert absolute("sqlite:////b/m.db", start) == "sqlite:////b/m.db"
    assert absolute("http://h:5000", start) == "http://h:5000"
    page = "#/experiments/3/runs/ab?workflowType=machine_learning"
    assert store.link("https://u:p@h/ml/", page) == f"https://h/ml/{page}"
    said = store.link("sqlite:////a b/m.db", page)
    assert said.startswith("mlflow ui --backend-store-uri 'sqlite:////a b/m.db'")
    assert said.endswith(f"  then open http://127.0.0.1:5000/{page}")
