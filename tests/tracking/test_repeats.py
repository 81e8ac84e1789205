"""Sent again: after a kill, after another judgement, after somebody deleted a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pilot.folder import PilotFolder
from pilot.jsonl import write_json
from pilot.tracking import store
from pilot.tracking.project import project
from tests.tracking import stored
from tests.tracking.conftest import MakePilot
from tests.tracking.pilots import five_arms

_WRITES = (
    *("create_experiment", "set_experiment_tag", "create_run", "log_batch", "log_inputs"),
    *("log_text", "log_artifact", "set_terminated"),
)


class _Dying:
    """A client whose process dies right after its n-th write has arrived: the worst moment."""

    def __init__(self, client: Any, left: int) -> None:
        self._client, self._left = client, left

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name not in _WRITES:
            return found

        def write(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            self._left -= 1
            if not self._left:
                raise KeyboardInterrupt
            return result

        return write


def _die_after(patch: pytest.MonkeyPatch, uri: str, writes: int) -> None:
    from mlflow import MlflowClient

    client = _Dying(MlflowClient(tracking_uri=uri), writes)
    patch.setattr(store, "open_store", lambda _: client)
    patch.setattr(store, "CHUNK", 50)


def _few_files(root: Path) -> Path:
    """The tests are about the calls."""
    for path in root.glob("arms/*/*.jsonl"):
        if not path.name.startswith("steps"):
            path.unlink()
    return root


def _without_ids(content: list[Any]) -> list[Any]:
    for _, _, tags, *_ in content:
        tags.pop("pilot.id")
        tags.pop("mlflow.parentRunId", None)
    return content


def test_attempts_that_are_killed_again_and_again_complete_it_without_duplicates(
    make_pilot: MakePilot, store_copy: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One store is filled in one go, one by attempts that each get one write further."""
    root = _few_files(make_pilot(f"sqlite:///{store_copy}"))
    other = store_copy.with_name("other.db")
    shutil.copy(empty_store, other)
    for writes in range(1, 100):
        with monkeypatch.context() as patch:
            _die_after(patch, f"sqlite:///{other}", writes)
            try:
                result = project(root)
            except KeyboardInterrupt:
                continue
            break
    assert result.status == "sent" and writes > 10
    PilotFolder(root).tracking.unlink()
    assert project(root).status == "sent"
    assert _without_ids(stored.content(other)) == _without_ids(stored.content(store_copy))


@pytest.mark.slow
def test_killed_after_each_single_write_sync_completes_it_without_duplicates(
    make_pilot: MakePilot, store_copy: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _few_files(make_pilot(f"sqlite:///{store_copy}"))
    tracking = PilotFolder(root).tracking
    assert project(root).status == "sent"
    expected, writes = _without_ids(stored.content(store_copy)), 0
    while True:
        writes += 1
        tracking.unlink()
        shutil.copy(empty_store, store_copy)
        with monkeypatch.context() as patch:
            _die_after(patch, f"sqlite:///{store_copy}", writes)
            try:
                project(root)
                break
            except KeyboardInterrupt:
                pass
        assert project(root).status == "sent"
        assert _without_ids(stored.content(store_copy)) == expected, writes
    assert writes >= 40


def test_points_of_a_killed_attempt_are_asked_for_and_not_sent_again(
    make_pilot: MakePilot, store_copy: Path
) -> None:
    """Not even when the step times changed in between, and with them the time stamps."""
    root = make_pilot(f"sqlite:///{store_copy}")
    project(root)
    before = stored.content(store_copy)
    folder = PilotFolder(root)
    state = json.loads(folder.tracking.read_text())
    state["arms"]["baseline"].update(metrics={"train/loss": 10}, is_sending=True)
    write_json(folder.tracking, state)
    resources = folder.arm("baseline").resources
    resources.write_text(resources.read_text().replace("0.05", "0.06"))
    assert project(root).status == "sent"
    points = [run[4] for run in stored.content(store_copy)]
    assert points[1]["train/loss"] == before[1][4]["train/loss"]
    assert {name: len(p) for name, p in points[1].items()} == {
        name: len(p) for name, p in before[1][4].items()
    }
    saved = json.loads(folder.tracking.read_text())["arms"]["baseline"]
    assert (saved["is_sending"], saved["metrics"]["train/loss"]) == (False, 48)


def test_a_server_that_goes_away_in_the_middle_costs_nothing_twice(
    make_pilot: MakePilot, store_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_pilot(f"sqlite:///{store_copy}", five_arms())

    def gone(*_: Any) -> None:
        raise ConnectionError("[Errno 111] Connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(store, "send_dataset", gone)  # after the baseline's series
        result = project(root)
    assert result.status == "failed"
    assert "not reached: [Errno 111] Connection refused" in result.lines[0]
    assert len(stored.runs(store_copy)) == 2
    assert project(root).status == "sent"
    runs = stored.runs(store_copy)
    assert len(runs) == 6
    assert len(stored.points(store_copy, runs[1].info.run_id)["train/loss"]) == 48


def test_judged_again_updates_the_runs(make_pilot: MakePilot, store_copy: Path) -> None:
    root = make_pilot(f"sqlite:///{store_copy}")
    run_id = project(root).run_id
    path = PilotFolder(root).verdict
    verdict = json.loads(path.read_text())
    verdict.update(verdict="INCONCLUSIVE", why="other gates")
    verdict["gates"][0]["status"] = "warn"
    verdict["arms"][1]["final_loss"] = 1.5
    write_json(path, verdict)
    assert project(root).run_id == run_id
    parent, _, arm = stored.runs(store_copy)
    assert parent.data.tags["pilot.verdict"] == arm.data.tags["pilot.verdict"] == "INCONCLUSIVE"
    assert parent.info.run_name == "INCONCLUSIVE · e4f5a6b"
    warned = sum(gate["status"] == "warn" for gate in verdict["gates"])
    assert parent.data.metrics["pilot/gates_warned"] == warned
    assert arm.data.metrics["pilot/final_loss"] == 1.5
    verdict["arms"][1]["final_loss"] = 1.25  # a smaller one: what was said last counts
    write_json(path, verdict)
    project(root)
    assert stored.runs(store_copy)[2].data.metrics["pilot/final_loss"] == 1.25


def test_a_deleted_parent_is_made_anew_over_the_same_arms(
    make_pilot: MakePilot, store_copy: Path
) -> None:
    root = make_pilot(f"sqlite:///{store_copy}")
    old = project(root).run_id
    kept = [run.info.run_id for run in stored.runs(store_copy)[1:]]
    stored.client(store_copy).delete_run(old)
    stored.client(store_copy).delete_run(kept[0])
    new = project(root).run_id
    assert new != old
    parent, baseline, arm = stored.runs(store_copy)
    assert parent.info.run_id == new
    assert baseline.info.run_id not in kept and arm.info.run_id == kept[1]
    assert arm.data.tags["mlflow.parentRunId"] == new
    assert len(stored.points(store_copy, baseline.info.run_id)["train/loss"]) == 48


def test_a_state_of_an_older_version_is_sent_as_new_runs(
    make_pilot: MakePilot, store_copy: Path
) -> None:
    root = make_pilot(f"sqlite:///{store_copy}")
    old = {"schema_version": 1, "store": f"sqlite:///{store_copy}", "run_id": "gone"}
    write_json(PilotFolder(root).tracking, old)
    assert project(root).status == "sent"
    assert len(stored.runs(store_copy)) == 3
