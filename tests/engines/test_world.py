"""The processes of an arm: who this one is, and what the end of another one looks like."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from pilot.engines import world
from pilot.errors import UsageError

GLOO = "[pair.cc:553] Connection closed by peer [127.0.0.1]:3461. This is typically caused by"


@pytest.fixture
def of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")


@pytest.mark.parametrize(
    "environment",
    [{"WORLD_SIZE": "2"}, {"OMPI_COMM_WORLD_SIZE": "8"}, {"PMI_SIZE": " 4 "}],
)
def test_one_of_many_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"launcher\.num_processes=N"):
        world.refuse_many(environment)


@pytest.mark.parametrize(
    "environment", [{}, {"WORLD_SIZE": "1", "RANK": "0"}, {"WORLD_SIZE": ""}, {"WORLD_SIZE": "x"}]
)
def test_a_single_one_is_not(environment: dict[str, str]) -> None:
    world.refuse_many(environment)
    assert world.started_by_others(environment) == ""


def test_alone_nothing_is_a_lost_peer() -> None:
    assert world.size() == 1 and world.rank() == 0
    assert not world.is_lost_peer(RuntimeError(GLOO))


@pytest.mark.usefixtures("of_two")
def test_what_says_that_a_peer_is_gone() -> None:
    wrapped = ValueError("training failed")
    wrapped.__cause__ = RuntimeError(GLOO)
    for error in (RuntimeError(GLOO), wrapped, world.PeerLost("x"), BrokenPipeError("Broken pipe")):
        assert world.is_lost_peer(error)
    late = RuntimeError("Timed out waiting 1800000ms for recv operation to complete")
    for own in (KeyError("gone"), late, ValueError(GLOO), None):
        assert not world.is_lost_peer(own)


@pytest.mark.usefixtures("of_two")
def test_the_first_failure_stays(tmp_path: Path) -> None:
    path = tmp_path / "outcome.json"
    world.leave(path, {"a": 1})
    world.leave(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1} and list(tmp_path.iterdir()) == [path]
    assert world.in_process() == "in process 1 of 2: "


@pytest.mark.usefixtures("of_two")
def test_a_signal_passes_the_users_excepts() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(world.Stopped), world.stoppable():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Exception:
            pytest.fail("an `except Exception` held it up")
    assert signal.getsignal(signal.SIGTERM) is before
