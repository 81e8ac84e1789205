"""The experiment and the runs of a pilot in a store: found again, or created once.

A run's id is saved right after its creation. Should the pilot be killed between the two, the run is
found by its tag ``pilot.id``, which was saved before.
"""

from __future__ import annotations

import contextlib
import getpass
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pilot.errors import PilotError
from pilot.tracking import pages
from pilot.tracking.state import RunState
from pilot.tracking.store import sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

ID_TAG = "pilot.id"
PARENT_TAG = "mlflow.parentRunId"
_USER_TAG = "mlflow.user"
_NOTE_TAG = "mlflow.note.content"


def find_experiment(client: MlflowClient, uri: str, name: str) -> str:
    """The id of experiment ``name``, created when there is none.

    Raises:
        PilotError: it was deleted in the store.
    """
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            client.create_experiment(name, _artifact_location(uri, name))
        except MlflowException:  # another pilot was faster, or it really fails
            if client.get_experiment_by_name(name) is None:
                raise
        found = client.get_experiment_by_name(name)
    if found.lifecycle_stage == "deleted":
        raise PilotError(
            f"experiment {name!r} was deleted in the store; restore it "
            f"(mlflow experiments restore --experiment-id {found.experiment_id}) or set "
            "tracking.experiment to another name"
        )
    _describe(client, str(found.experiment_id), found.tags)
    return str(found.experiment_id)


def _describe(client: MlflowClient, experiment_id: str, tags: Mapping[str, str]) -> None:
    """A note and a saved view, each unless there is one: a person may have changed them."""
    if not tags.get(_NOTE_TAG):
        client.set_experiment_tag(experiment_id, _NOTE_TAG, pages.EXPERIMENT_NOTE)
    if not tags.get(pages.VIEW_TAG):
        # A private format of MLflow: worth having, never worth failing for.
        with contextlib.suppress(Exception):
            view = pages.saved_view(int(1000 * time.time()))
            client.set_experiment_tag(experiment_id, pages.VIEW_TAG, view)


def _artifact_location(uri: str, name: str) -> str | None:
    """Beside an embedded store, absolute; a server decides for itself."""
    path, _ = sqlite_path(uri)
    if path is None:
        return None
    folder = re.sub(r"[^\w.-]+", "_", name).strip("._") or "pilot"
    return (path.parent / "mlartifacts" / folder).as_uri()


def run_exists(client: MlflowClient, run_id: str) -> bool:
    """Whether the run is there and not deleted."""
    from mlflow.exceptions import MlflowException

    try:
        return bool(client.get_run(run_id).info.lifecycle_stage == "active")
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return False
        raise


def ensure_run(
    client: MlflowClient,
    experiment_id: str,
    known: RunState,
    *,
    key: str,
    name: str,
    start_ms: int,
    parent_id: str = "",
) -> RunState:
    """``known`` if its run is still in the store, else the run that has ``key``, else a new one."""
    if known.run_id and run_exists(client, known.run_id):
        return known
    found = client.search_runs([experiment_id], f"tags.`{ID_TAG}` = '{key}'", max_results=1)
    if found:  # its id could not be saved; what else arrived is for the store to say
        return RunState(run_id=str(found[0].info.run_id), is_sending=True)
    tags = {ID_TAG: key, **({PARENT_TAG: parent_id} if parent_id else {})}
    with contextlib.suppress(Exception):  # no name: the page says so
        tags[_USER_TAG] = getpass.getuser()
    run = client.create_run(experiment_id, start_time=start_ms, tags=tags, run_name=name)
    return RunState(run_id=str(run.info.run_id))
