"""Everything of one pilot in its store: a parent run, verdict first, and a run per arm under it.

The order is: experiment, parent, its tags, then arm by arm everything, then the rest of the parent.
A run's id is kept before anything else of it is sent.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilot.errors import FolderError
from pilot.folder import PilotFolder, read_json
from pilot.locks import hold
from pilot.report.words import one_line
from pilot.tracking import children, pages, payload, runs, send, series, store
from pilot.tracking.hide import hide_text
from pilot.tracking.note import child_note, note
from pilot.tracking.pictures import for_note
from pilot.tracking.state import RunState, State, read_state
from pilot.view import ArmView, PilotView

if TYPE_CHECKING:
    from mlflow import MlflowClient

_NOTE_TAG = "mlflow.note.content"
_WAIT_SECS = 60.0


@dataclass(frozen=True, kw_only=True)
class _Upload:
    """What is sent, and where to."""

    client: MlflowClient
    folder: PilotFolder
    view: PilotView
    verdict: Mapping[str, Any]
    state: State
    pictures: Mapping[str, Path]

    def target(self, run: RunState, start_ms: int) -> send.Target:
        return send.Target(client=self.client, run=run, start_ms=start_ms, save=self.save)

    def save(self) -> None:
        self.state.save(self.folder.tracking)


def upload(folder: PilotFolder, view: PilotView, verdict: Mapping[str, Any], uri: str) -> State:
    """Send what is missing of a judged pilot to the store ``uri``; raises whatever went wrong."""
    uri = store.absolute_uri(uri, _start_dir(folder))
    lock = folder.root / ".tracking.lock"
    with (
        hold(lock, "it is being sent to its tracking store", wait_secs=_WAIT_SECS),
        tempfile.TemporaryDirectory() as scratch,
    ):
        job = _Upload(
            client=store.open_store(uri),
            folder=folder,
            view=view,
            verdict=verdict,
            state=read_state(folder.tracking, hide_text(uri)),
            pictures=for_note(payload.figure_files(folder), Path(scratch)),
        )
        _send_all(job, uri)
    return job.state


def _send_all(job: _Upload, uri: str) -> None:
    _find_parent(job, uri)
    _send_parent_tags(job)
    arms = children.sent_arms(job.view)
    for place, arm in enumerate(arms):
        # Lists show the newest first: so the arms stand in their order, the baseline on top.
        _send_child(job, arm, job.state.start_ms + len(arms) - place)
    _send_parent(job)
    job.state.status = "complete"
    job.save()


def _start_dir(folder: PilotFolder) -> Path:
    """Where the pilot was started, or here when that is not known or no longer there."""
    try:
        path = Path(str(read_json(folder.start)["cwd"]))
    except (OSError, ValueError, KeyError, FolderError):
        return Path.cwd()
    return path if path.is_dir() else Path.cwd()


def _find_parent(job: _Upload, uri: str) -> None:
    """The parent kept in ``tracking.json`` if it is still in the store, or a new one."""
    state, view = job.state, job.view
    wanted = (view.config.get("tracking") or {}).get("experiment")
    experiment = one_line(wanted or f"pilot/{view.plan.recipe}", 200)
    state.experiment_id = runs.find_experiment(job.client, uri, experiment)
    state.start_ms = state.start_ms or int(1000 * (time.time() - payload.cost_secs(view)))
    state.status = "partial"
    job.save()  # with the pilot's id, by which a run is found whose own id cannot be saved
    state.parent = runs.ensure_run(
        job.client,
        state.experiment_id,
        state.parent,
        key=state.pilot_id,
        name=payload.run_name(job.verdict),
        start_ms=state.start_ms,
    )
    run_id = state.parent.run_id
    state.link = store.link(uri, pages.run_page(state.experiment_id, run_id))
    state.arms_link = store.address(uri, pages.arms_page(state.experiment_id, run_id))
    job.save()


def _send_parent_tags(job: _Upload) -> None:
    root, run_id = job.folder.root.resolve(), job.state.parent.run_id
    text = note(
        job.verdict,
        root,
        experiment_id=job.state.experiment_id,
        run_id=run_id,
        figures=list(job.pictures),
    )
    tags = {**payload.tags(job.view, job.verdict, root), _NOTE_TAG: text}
    store.send_tags(job.client, run_id, tags)


def _send_child(job: _Upload, arm: ArmView, start_ms: int) -> None:
    """One arm as a run of its own: everything that a page of it needs."""
    state, view, row = job.state, job.view, children.row_of(job.verdict, arm)
    name, parent_id = arm.job.arm, state.parent.run_id
    run = state.arms[name] = runs.ensure_run(
        job.client,
        state.experiment_id,
        state.arms.get(name, RunState()),
        key=f"{state.pilot_id}/{name}",
        name=children.child_name(arm),
        start_ms=start_ms,
        parent_id=parent_id,
    )
    job.save()
    target, secs = job.target(run, start_ms), series.arm_secs(arm)
    tags = children.child_tags(view, job.verdict, arm)
    pilot_name = payload.run_name(job.verdict)
    text = child_note(tags["pilot.why"], pilot_name, state.experiment_id, parent_id)
    store.send_tags(job.client, run.run_id, {**tags, runs.PARENT_TAG: parent_id, _NOTE_TAG: text})
    send.send_params(target, payload.params(children.arm_config(job.folder, view, arm)))
    send.send_series(target, series.arm_points(view, arm))
    send.send_scalars(target, series.arm_scalars(arm, row), secs)
    send.send_dataset(target, payload.dataset_facts(view))
    end_ms = start_ms + int(1000 * secs)
    job.client.set_terminated(run.run_id, children.child_status(arm, row), end_ms)


def _send_parent(job: _Upload) -> None:
    """What the parent has beside its tags: numbers of the whole pilot, no series, and the files."""
    state, view = job.state, job.view
    target, secs = job.target(state.parent, state.start_ms), payload.cost_secs(view)
    send.send_params(target, payload.params(view.config))
    send.send_scalars(target, payload.scalars(view, job.verdict), secs)
    send.send_dataset(target, payload.dataset_facts(view))
    log_text = bool((view.config.get("tracking") or {}).get("log_text"))
    files = {**payload.record_files(job.folder), **job.pictures}
    send.send_files(target, files, payload.text_files(job.folder, log_text))
    end_ms = state.start_ms + int(1000 * secs)
    job.client.set_terminated(state.parent.run_id, "FINISHED", end_ms)  # NO-GO is a result
