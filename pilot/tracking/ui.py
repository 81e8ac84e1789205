"""Shows the newest pilot in MLflow's pages: ``python -m pilot.tracking.ui``, or ``make ui``.

MLflow's own first page shows traces of language-model applications and none of the runs, so this
prints the addresses of the pages that matter, and opens the first where there is a browser.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from pilot.errors import ExitCode, PilotError
from pilot.report.terminal import Terminal, make_terminal
from pilot.tracking import pages, store
from pilot.tracking.payload import PARENT_ROLE

_DEFAULT_STORE = "sqlite:///outputs/mlflow.db"
_HOST = "127.0.0.1"
_START_SECS = 180.0  # a busy machine needs a minute
_NUM_PORTS = 20


class Newest(NamedTuple):
    """The parent run of the newest pilot in a store."""

    name: str
    experiment_id: str
    run_id: str
    has_view: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the store until interrupted; 0, or 2 when there is nothing to show."""
    parser = argparse.ArgumentParser(
        prog="python -m pilot.tracking.ui", description="Show the newest pilot in MLflow."
    )
    parser.add_argument("--store", default=_DEFAULT_STORE, help="tracking address (%(default)s)")
    parser.add_argument("--port", type=int, default=5000, help="first port to try (%(default)s)")
    options = parser.parse_args(arguments)
    terminal = make_terminal()
    uri = store.absolute_uri(options.store, Path.cwd())
    try:
        newest = _newest_pilot(uri)
    except PilotError as error:
        terminal.warn(str(error))
        return ExitCode.USAGE
    if not store.is_embedded(uri):
        _say_pages(terminal, uri, newest)
        return ExitCode.GO
    return _serve(terminal, uri, newest, _free_port(options.port))


def _newest_pilot(uri: str) -> Newest:
    """The newest pilot in the store.

    Raises:
        PilotError: there is no store, no pilot in it, or it cannot be read.
    """
    path, _ = store.sqlite_path(uri)
    if path is not None and not path.is_file():
        raise PilotError(f"no tracking store yet: {path} is not there; run a pilot first")
    try:
        with store.quiet():
            client = store.open_store(uri)
            ids = [each.experiment_id for each in client.search_experiments()]
            wanted = f"tags.`pilot.role` = '{PARENT_ROLE}'"
            order = ["attributes.start_time DESC"]
            runs = client.search_runs(ids, wanted, max_results=1, order_by=order) if ids else []
            home = client.get_experiment(runs[0].info.experiment_id) if runs else None
    except Exception as error:
        raise PilotError(f"{uri} cannot be read: {store.reason(error)[1]}") from error
    if home is None:
        raise PilotError(f"no pilot in {uri} yet; run one first")
    info, has_view = runs[0].info, pages.VIEW_TAG in home.tags
    return Newest(str(info.run_name), str(info.experiment_id), str(info.run_id), has_view)


def _say_pages(terminal: Terminal, server: str, newest: Newest) -> None:
    experiment, run = newest.experiment_id, newest.run_id
    terminal.say(f"{newest.name}: {store.address(server, pages.run_page(experiment, run))}")
    terminal.say(f"its arms: {store.address(server, pages.arms_page(experiment, run))}")
    every = pages.view_page(experiment) if newest.has_view else pages.list_page(experiment)
    terminal.say(f"all pilots: {store.address(server, every)}")


def _serve(terminal: Terminal, uri: str, newest: Newest, port: int) -> int:
    server = f"http://{_HOST}:{port}"
    terminal.say(f"starting MLflow on {server} (up to half a minute) ...")
    with tempfile.TemporaryFile() as log, _running(uri, port, log) as process:
        if not _is_up(process, f"{server}/health"):
            log.seek(0)
            lines = log.read().decode("utf-8", "replace").strip().splitlines()[-5:]
            terminal.warn("MLflow did not start: " + " / ".join(lines or ["it said nothing"]))
            return ExitCode.CRASH
        _say_pages(terminal, server, newest)
        terminal.say("Ctrl-C ends it")
        if sys.stdout.isatty() and _has_screen():
            webbrowser.open(
                store.address(server, pages.run_page(newest.experiment_id, newest.run_id))
            )
        with contextlib.suppress(KeyboardInterrupt):
            return ExitCode.CRASH if process.wait() else ExitCode.GO
    return ExitCode.GO


@contextlib.contextmanager
def _running(uri: str, port: int, log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """MLflow's server with all its processes, ended at the end, however that comes."""
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
    command += ["--host", _HOST, "--port", str(port), "--workers", "1"]
    quiet = {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # four more processes, of no use here
    }
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # A shell starts what runs in the background with SIGINT ignored.
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        command, env={**os.environ, **quiet}, stdout=log, stderr=log, start_new_session=True
    )
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, interrupt)


def _is_up(process: subprocess.Popen[bytes], address: str) -> bool:
    deadline = time.monotonic() + _START_SECS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, urllib.error.URLError):
            urllib.request.urlopen(address, timeout=5).close()
            return True
        time.sleep(0.3)
    return False


def _free_port(first: int) -> int:
    """``first``, or the next port that nobody listens on."""
    for port in range(first, first + _NUM_PORTS):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((_HOST, port))
            return port
    return first


def _has_screen() -> bool:
    """Whether a browser window would be seen."""
    return sys.platform == "darwin" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ))


if __name__ == "__main__":
    sys.exit(main())
