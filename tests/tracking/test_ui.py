"""The script of ``make ui`` without a server; ``test_browser.py`` starts it for good."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pilot.errors import ExitCode
from pilot.tracking import ui
from pilot.tracking.project import project
from tests.factories import build_view
from tests.tracking.conftest import MakePilot


def test_no_store_and_no_pilot_are_told(
    tmp_path: Path, store_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "mlflow.db"
    assert ui.main(["--store", f"sqlite:///{missing}"]) == ExitCode.USAGE
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("warning: no tracking store yet: ") and said.endswith(
        "run a pilot first"
    )
    assert not missing.exists()
    assert ui.main(["--store", f"sqlite:///{store_copy}"]) == ExitCode.USAGE
    assert "no pilot in" in capsys.readouterr().err
    (tmp_path / "mlflow.db").write_text("this is not a database")
    assert ui.main(["--store", f"sqlite:///{missing}"]) == ExitCode.USAGE
    assert "cannot be read" in capsys.readouterr().err


def test_the_newest_parent_is_found_among_its_children(
    make_pilot: MakePilot, store_copy: Path
) -> None:
    uri = f"sqlite:///{store_copy}"
    run_id = project(make_pilot(uri, build_view())).run_id
    newest = ui._newest_pilot(uri)
    assert (newest.name, newest.run_id, newest.has_view) == ("GO · e4f5a6b", run_id, True)


def test_a_taken_port_is_passed_over() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        assert port < ui._free_port(port) < port + 20


def test_a_server_that_ends_at_once_is_not_waited_for() -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    process.wait()
    assert not ui._is_up(process, "http://127.0.0.1:9/health")
