"""Where an MLflow run is looked for: never a store that is not there, for MLflow would make it."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pilot.errors import LogError

_HERE, _FOLDER = "mlflow.db", "mlruns"  # what MLflow takes in the current folder, without an URI
_REMEDY = "check the run id and --tracking-uri (or MLFLOW_TRACKING_URI); or give its folder"
_RUN_ID = re.compile(r"\w[\w.-]{0,255}")


def find(spec: str, run_id: str, tracking_uri: str | None) -> tuple[str, Path | None]:
    """The address of the store, and the folder of the run where the store is a folder.

    Raises:
        LogError: there is no such store, or no such run in a folder; nothing is created.
    """
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or _default(spec)
    file, folder = _database(uri), _folder(uri)
    if file is not None and not _has_runs(file):
        raise LogError(spec, f"there is no tracking store {file}", remedy=_REMEDY)
    if folder is None:
        return uri, None
    if not folder.is_dir():
        raise LogError(spec, f"there is no such folder: {folder}", remedy=_REMEDY)
    found = sorted(folder.glob(f"*/{run_id}")) if _RUN_ID.fullmatch(run_id) else []
    if not found:
        raise LogError(spec, f"there is no run {run_id} in the folder {folder}", remedy=_REMEDY)
    return uri, found[0]


def missing(spec: str, what: str) -> LogError:
    """The store cannot give the run."""
    return LogError(spec, what, remedy=_REMEDY)


def _default(spec: str) -> str:
    if Path(_FOLDER).is_dir() and not Path(_HERE).is_file():
        return _FOLDER
    if Path(_HERE).is_file():
        return f"sqlite:///{_HERE}"
    what = f"no tracking store is given, and here is neither {_HERE} nor {_FOLDER}"
    raise LogError(spec, what, remedy=f"give --tracking-uri or set MLFLOW_TRACKING_URI; {_REMEDY}")


def _database(uri: str) -> Path | None:
    if not uri.startswith("sqlite:///"):
        return None
    path = uri.removeprefix("sqlite:///").partition("?")[0]
    return None if path.startswith(":memory:") or not path else Path(unquote(path))


def _has_runs(file: Path) -> bool:
    """Whether a database has MLflow's table of runs: in any other one it would make its own."""
    if not file.is_file():
        return False
    try:
        address = f"{file.resolve().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as base:
            found = base.execute("select 1 from sqlite_master where type='table' and name='runs'")
            return found.fetchone() is not None
    except sqlite3.Error:
        return False


def _folder(uri: str) -> Path | None:
    """The folder of a store without a database: a plain path or a ``file:`` address."""
    if uri.startswith("file:"):
        return Path(unquote(urlsplit(uri).path))
    has_scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", uri) is not None  # "C:" is none
    return None if has_scheme or uri == "databricks" else Path(uri)
