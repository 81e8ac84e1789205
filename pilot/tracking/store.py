"""The tracking store through ``MlflowClient`` only: no active run, no global tracking URI.

MLflow is imported inside functions (2 s); ``quiet`` keeps its telemetry off and its logging silent.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilot.errors import PilotError
from pilot.locks import hold
from pilot.report.words import one_line
from pilot.tracking.hide import hide_message, hide_text
from pilot.tracking.series import Point

if TYPE_CHECKING:
    from mlflow import MlflowClient

CHUNK = 1000  # what the REST interface accepts in one batch of metrics
_SQLITE = "sqlite:///"
_UI = "http://127.0.0.1:5000"  # where `mlflow ui` listens unless told otherwise
# Fixed: telemetry and noise. Defaults: a dead server must be noticed in seconds, but who has set a
# variable for a slow server keeps it.
_FIXED = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """MLflow without telemetry, without output, with short time limits; all restored afterwards."""
    kept = {key: os.environ.get(key) for key in (*_FIXED, *_DEFAULTS)}
    os.environ.update(_FIXED)
    for key, value in _DEFAULTS.items():
        os.environ.setdefault(key, value)
    noise = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(noise),
            contextlib.redirect_stderr(noise),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for key, old in kept.items():
            if old is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = old


def absolute_uri(uri: str, start_dir: Path) -> str:
    """``uri`` with a relative SQLite path made absolute, from where the pilot was started."""
    path, query = sqlite_path(uri)
    if path is None:
        return uri
    return f"{_SQLITE}{(start_dir / path).resolve()}{query}"


def sqlite_path(uri: str) -> tuple[Path | None, str]:
    """The file of an SQLite address and its query; None for any other store."""
    if not uri.startswith(_SQLITE) or uri.startswith(f"{_SQLITE}:memory:"):
        return None, ""
    path, mark, query = uri.removeprefix(_SQLITE).partition("?")
    return (Path(path), mark + query) if path else (None, "")


def open_store(uri: str) -> MlflowClient:
    """A client for ``uri`` (absolute); an embedded store is created first, by one at a time.

    Raises:
        PilotError: MLflow is not installed, or the store would not outlive the process.
    """
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise PilotError(f"MLflow cannot be imported ({error}); pip install mlflow") from error
    path, _ = sqlite_path(uri)
    if path is None:
        if uri.startswith("sqlite:"):
            raise PilotError("a store in memory is gone with the process; give sqlite:///FILE.db")
        return MlflowClient(tracking_uri=uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    with hold(lock, "the tracking store is being created", wait_secs=120.0):
        client = MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)  # creates the tables; two at once would fail
    return client


def send_tags(client: MlflowClient, run_id: str, tags: Mapping[str, str]) -> None:
    """Set tags; what was there is replaced."""
    from mlflow.entities import RunTag

    client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])


def send_params(client: MlflowClient, run_id: str, params: Mapping[str, str]) -> None:
    """Set params, a hundred at a time; equal ones may be sent again."""
    from mlflow.entities import Param

    items = [Param(key, value) for key, value in params.items()]
    for first in range(0, len(items), 100):
        client.log_batch(run_id, params=items[first : first + 100])


def send_points(client: MlflowClient, run_id: str, points: Sequence[Point], start_ms: int) -> None:
    """Send at most ``CHUNK`` points in one call: all of them arrive, or none.

    The latest point of a series goes first: a store rewrites its row of latest values for each
    point that is later than the one before (6 % of the time). The garbage collector waits: it would
    walk through MLflow's row objects again and again (20 to 25 %).
    """
    from mlflow.entities import Metric

    with _no_garbage_collection():
        metrics = [
            Metric(p.name, p.value, start_ms + int(1000 * p.secs), p.step) for p in reversed(points)
        ]
        client.log_batch(run_id, metrics=metrics)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def stored_steps(
    client: MlflowClient, run_id: str, names: Iterable[str]
) -> dict[str, frozenset[int]]:
    """The steps that the store has of each series; a series that it lacks is left out."""
    known = client.get_run(run_id).data.metrics
    return {
        name: frozenset(metric.step for metric in client.get_metric_history(run_id, name))
        for name in names
        if name in known
    }


def send_dataset(client: MlflowClient, run_id: str, facts: Mapping[str, Any]) -> None:
    """Name the training data: ``name``, ``digest``, ``source``, ``profile``; no rows."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(
        name=str(facts["name"]),
        digest=str(facts["digest"]),
        source_type="pilot",
        source=str(facts["source"]),
        profile=str(facts["profile"]),
    )
    context = InputTag("mlflow.data.context", "pilot")
    client.log_inputs(run_id, [DatasetInput(dataset, [context])])


def link(uri: str, page: str) -> str:
    """How a person opens a page: its address, or the command that shows an embedded store."""
    if _is_server(uri):
        return address(uri, page)
    command = f"mlflow ui --backend-store-uri {shlex.quote(hide_text(uri))}"
    return f"{command}  then open {address(uri, page)}"


def address(uri: str, page: str) -> str:
    """The address of a page; of an embedded store: while ``mlflow ui`` shows it."""
    server = hide_text(uri).replace("<hidden>@", "").rstrip("/") if _is_server(uri) else _UI
    return f"{server}/{page}"


def is_embedded(uri: str) -> bool:
    """Whether ``uri`` is a store without a server of its own."""
    return not _is_server(uri)


def _is_server(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


def reason(error: BaseException) -> tuple[bool, str]:
    """Whether ``error`` means that the server was not reached, and why in one line.

    Credentials in addresses are hidden.
    """
    chain, current = [error], error.__cause__ or error.__context__
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    modules = {type(item).__module__.split(".")[0] for item in chain}
    unreached = bool(modules & {"requests", "urllib3"}) or any(
        isinstance(item, ConnectionError) for item in chain
    )
    text = hide_message(one_line(error))
    system = re.search(r"\[Errno -?\d+\] [\w ,.-]+", text)
    if unreached and system:
        return True, system.group(0).strip()
    if unreached and "timed out" in text:
        return True, "timed out"
    return unreached, one_line(f"{type(error).__name__}: {text}", 300)
