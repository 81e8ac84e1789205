"""Sends a finished pilot to its tracking store; can be repeated until everything has arrived.

The order is: experiment, run (its id is kept before anything else is sent), tags, params, metrics,
data set, files, status. A failure never changes the pilot's exit code: its result is complete in
the folder.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilot.errors import ExitCode, FolderError
from pilot.folder import PilotFolder, read_json
from pilot.report.words import clean, human_secs, one_line
from pilot.tracking import payload, store
from pilot.tracking.hide import hide_message, hide_text
from pilot.tracking.note import note
from pilot.tracking.state import State, read_state
from pilot.view import PilotView, load

if TYPE_CHECKING:
    from mlflow import MlflowClient


@dataclass(frozen=True, kw_only=True)
class ProjectionResult:
    """What became of it: ``off`` (no ``tracking.uri``), ``sent`` or ``failed``.

    ``lines`` say what the person has to know beside the link, which the verdict shows.
    """

    status: str
    lines: tuple[str, ...] = ()
    link: str = ""
    run_id: str = ""
    secs: float = 0.0


def project(root: Path) -> ProjectionResult:
    """Send the pilot in ``root`` to ``tracking.uri`` of its configuration; never raises.

    Nothing happens when ``tracking.uri`` is null. Whatever goes wrong (server away, store damaged,
    MLflow missing, disk full) is told in ``lines``, with the command that tries again.
    """
    started = time.monotonic()
    uri = ""
    try:
        view, verdict = load(root), _read_verdict(root)
        uri = str((view.config.get("tracking") or {}).get("uri") or "")
        if not uri:
            return ProjectionResult(status="off")
        with store.quiet():
            state = _send(PilotFolder(root), view, verdict, uri)
    except Exception as error:  # a projection must never cost the verdict
        return ProjectionResult(status="failed", lines=(_failure(root, uri, error),))
    secs = time.monotonic() - started
    return ProjectionResult(status="sent", link=state.link, run_id=state.run_id, secs=secs)


def sync(root: Path) -> ExitCode:
    """``python -m pilot sync DIR``: send (again), say what happened.

    Returns ``GO`` (0) when everything arrived, ``CRASH`` (1) when not, ``USAGE`` (2) when tracking
    is off.

    Raises:
        FolderError: ``root`` is not a judged pilot.
    """
    from pilot.report.terminal import make_terminal

    load(root)
    _read_verdict(root)
    terminal, result = make_terminal(), project(root)
    if result.status == "off":
        terminal.warn(f"tracking is off: set tracking.uri in {PilotFolder(root).config}")
        return ExitCode.USAGE
    for line in result.lines:
        terminal.warn(line)
    if result.status == "failed":
        return ExitCode.CRASH
    terminal.say(f"sent in {human_secs(result.secs)}: run {result.run_id}")
    terminal.say(f"tracking: {result.link}")
    return ExitCode.GO


def _read_verdict(root: Path) -> dict[str, Any]:
    path = PilotFolder(root).verdict
    if not path.is_file():
        raise FolderError(
            root,
            "has no verdict yet: verdict.json is missing",
            remedy=f"python -m pilot resume {root}, or: python -m pilot judge {root}",
        )
    return read_json(path)


def _failure(root: Path, uri: str, error: Exception) -> str:
    unreached, why = store.reason(error)
    what = (
        f"tracking server {hide_text(clean(uri))} not reached: {why}"
        if unreached
        else f"tracking in {hide_text(clean(uri))} failed: {why}"
    )
    again = f"python -m pilot sync {shlex.quote(str(root))}"
    return f"{what}; the pilot's result is complete in {root}; later: {again}"


def _send(folder: PilotFolder, view: PilotView, verdict: Mapping[str, Any], uri: str) -> State:
    uri = store.absolute_uri(uri, _start_dir(folder))
    state = read_state(folder.tracking, hide_text(uri))
    client = store.open_store(uri)
    state = _find_run(client, folder, view, verdict, uri, state)
    state.status = "partial"
    files = payload.record_files(folder)
    pictures = [name for name in files if name.startswith("figures/")]
    root = folder.root.resolve()
    tags = payload.tags(view, verdict, root)
    tags["mlflow.note.content"] = note(verdict, state.run_id, pictures, root)
    store.send_tags(client, state.run_id, tags)
    if not state.params_sent:
        store.send_params(client, state.run_id, payload.params(view.config))
        state.params_sent = True
        state.save(folder.tracking)
    _send_metrics(client, folder, view, verdict, state)
    if not state.dataset_sent:
        store.send_dataset(client, state.run_id, dataset_facts(view))
        state.dataset_sent = True
        state.save(folder.tracking)
    log_text = bool((view.config.get("tracking") or {}).get("log_text"))
    _send_files(client, folder, files, payload.text_files(folder, log_text), state)
    end_ms = state.start_ms + int(1000 * cost_secs(view))
    client.set_terminated(state.run_id, "FINISHED", end_ms)  # NO-GO is a result, not a failure
    state.status = "complete"
    state.save(folder.tracking)
    return state


def _start_dir(folder: PilotFolder) -> Path:
    """Where the pilot was started, or here when that is not known or no longer there."""
    try:
        path = Path(str(read_json(folder.start)["cwd"]))
    except (OSError, ValueError, KeyError, FolderError):
        return Path.cwd()
    return path if path.is_dir() else Path.cwd()


def _find_run(
    client: MlflowClient,
    folder: PilotFolder,
    view: PilotView,
    verdict: Mapping[str, Any],
    uri: str,
    state: State,
) -> State:
    """The run kept in ``tracking.json`` if it is still in the store, or a new one."""
    if state.run_id and store.run_exists(client, state.run_id):
        return state
    wanted = (view.config.get("tracking") or {}).get("experiment")
    name = one_line(wanted or f"pilot/{view.plan.recipe}", 200)
    experiment_id = store.find_experiment(client, uri, name)
    start_ms = int(1000 * (time.time() - cost_secs(view)))
    run = client.create_run(experiment_id, start_time=start_ms, run_name=payload.run_name(verdict))
    fresh = State(
        store=state.store,
        experiment_id=experiment_id,
        run_id=run.info.run_id,
        link=store.link(uri, experiment_id, run.info.run_id),
        start_ms=start_ms,
    )
    fresh.save(folder.tracking)  # before anything else: a second run for one pilot is worse
    return fresh


def _send_metrics(
    client: MlflowClient,
    folder: PilotFolder,
    view: PilotView,
    verdict: Mapping[str, Any],
    state: State,
) -> None:
    points = [p for p in payload.series(view) if p.step > state.metrics.get(p.name, -1)]
    for first in range(0, len(points), store.CHUNK):
        chunk = points[first : first + store.CHUNK]
        store.send_points(client, state.run_id, chunk, state.start_ms)
        state.metrics.update({p.name: p.step for p in chunk})
        state.save(folder.tracking)
    values = payload.scalars(view, verdict)
    news = {name: v for name, v in values.items() if state.scalars.get(name) != v}
    step, secs = view.plan.stop_step, cost_secs(view)
    if news:
        if state.scalars:  # judged again: at the same step the later time stamp wins
            secs = max(secs, time.time() - state.start_ms / 1000)
        numbers = [payload.Point(name, step, value, secs) for name, value in news.items()]
        store.send_points(client, state.run_id, numbers, state.start_ms)
        state.scalars.update(news)
        state.save(folder.tracking)


def _send_files(
    client: MlflowClient,
    folder: PilotFolder,
    files: Mapping[str, Path],
    texts: Mapping[str, Path],
    state: State,
) -> None:
    for name, path in {**texts, **files}.items():
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if state.artifacts.get(name) == digest:
            continue
        if name in texts:
            text = data.decode("utf-8", errors="replace")
            client.log_text(state.run_id, hide_message(text), name)
        else:
            parent = name.rpartition("/")[0]
            client.log_artifact(state.run_id, str(path), parent or None)
        state.artifacts[name] = digest
    state.save(folder.tracking)


def dataset_facts(view: PilotView) -> dict[str, str]:
    """Name, digest and size of the training data; the digest covers sources and row lengths."""
    rows = view.rows
    digest = hashlib.sha256("\n".join(rows.source_names).encode())
    for array in (rows.num_tokens, rows.num_supervised_tokens, rows.source):
        digest.update(array.astype("<i8").tobytes())
    sources = [one_line(name, 60) for name in rows.source_names[:20]]
    profile = {"num_rows": len(rows.num_tokens), "num_tokens": int(rows.num_tokens.sum())}
    return {
        "name": one_line(view.plan.recipe, 200),
        "digest": digest.hexdigest()[:16],
        "source": json.dumps({"sources": sources}),
        "profile": json.dumps(profile),
    }


def cost_secs(view: PilotView) -> float:
    """Measured seconds of all arms."""
    times = (r.secs for arm in view.arms.values() for r in arm.resources)
    return float(sum(secs for secs in times if 0 <= secs < 1e9))
