"""Streams that are closed or full, a log from a pipe, and what a picture may replace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from pilot.diagnose.run import Options, diagnose, guarded
from pilot.diagnose.target import complaint, replaced
from tests.conftest import environment
from tests.diagnose.test_command import Answer, answer  # noqa: F401  (a fixture)
from tests.diagnose.traces import healthy_loss, write_state


def shell(logs: Path, line: str, given: str = "") -> Answer:
    done = subprocess.run(
        ["bash", "-c", line.replace("pilot", f"{sys.executable} -m pilot")],
        cwd=logs,
        env={**environment(), "COLUMNS": "100"},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("words", ["", "--json"])
@pytest.mark.parametrize(
    ("stream", "why"), [(">&-", "it is closed"), ("> /dev/full", "No space left on device")]
)
def test_stdout_that_takes_nothing_is_1_and_one_line(
    words: str, stream: str, why: str, logs: Path
) -> None:
    done = shell(logs, f"pilot diagnose nan.json {words} {stream}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"pilot: the answer cannot be written to stdout: {why}\n"


@pytest.mark.parametrize("stream", ["2>&-", "2> /dev/full"])
def test_stderr_that_takes_nothing_changes_neither_code_nor_stdout(stream: str, logs: Path) -> None:
    done = shell(logs, f"pilot diagnose nan.json missing.json --json --plot out.png {stream}")
    assert done.returncode == 3
    assert [run["state"] for run in json.loads(done.stdout)["runs"]] == ["diverged", "unreadable"]
    assert shell(logs, f"pilot diagnose healthy.json --format odd {stream}") == (2, "", "")


def test_values_near_the_largest_float_warn_nobody(logs: Path) -> None:
    write_state(logs / "huge.json", [1e308 * (1 + k % 3 / 10) for k in range(120)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code = guarded(Options(paths=(str(logs / "huge.json"),), plot=logs / "huge.png"))
    assert code in (0, 3)


@pytest.mark.parametrize("line", ["cat {} | pilot diagnose -", "pilot diagnose - < {}"])
def test_stdin(line: str, logs: Path) -> None:
    done = shell(logs, line.format("nan.json") + " --json")
    (run,) = json.loads(done.stdout)["runs"]
    assert (done.returncode, run["source"], run["state"]) == (3, "-", "diverged")


def test_a_pipe_of_the_shell_and_a_pipe_without_a_log(logs: Path) -> None:
    done = shell(logs, "pilot diagnose <(cat healthy.json)")
    assert done.returncode == 0 and done.stdout.startswith("/dev/fd/")
    done = shell(logs, "echo some words | pilot diagnose -")
    assert done.returncode == 2
    assert done.stderr.startswith("pilot: -: no training log was recognised in it")
    assert "stdin is closed" in shell(logs, "pilot diagnose - <&-").stderr


def test_paths_that_are_none(logs: Path, answer: Callable[..., Answer]) -> None:  # noqa: F811
    assert "the path is empty" in answer("").stderr
    os.mkfifo(logs / "a.log")
    assert "write it to a file first, or pipe it into - (stdin)" in answer("a.log").stderr
    assert len(answer("x" * 5000).stderr) < 400


def test_only_a_picture_is_replaced(logs: Path) -> None:
    log = write_state(logs / "log.png", healthy_loss())
    text = log.read_text(encoding="utf-8")
    assert "exists and is no picture" in complaint(log)
    assert diagnose(Options(paths=(str(log),), plot=log)) == 2
    assert log.read_text(encoding="utf-8") == text
    os.mkfifo(logs / "pipe.png")
    assert "is a pipe or device" in complaint(logs / "pipe.png")
    # The second run's picture is checked as well.
    paths = (str(logs / "healthy.json"),) * 2
    write_state(logs / "x.2.png", healthy_loss())
    assert diagnose(Options(paths=paths, plot=logs / "x.png")) == 2
    assert (logs / "x.2.png").read_text(encoding="utf-8") == text


def test_a_picture_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    plot, link = tmp_path / "a.png", tmp_path / "b.png"
    plot.write_bytes(b"\x89PNG old")
    link.symlink_to(plot)
    with pytest.raises(OSError, match="full"), replaced(plot) as file:
        file.write(b"\x89PNG half")
        raise OSError("full")
    assert plot.read_bytes() == b"\x89PNG old"
    with replaced(link) as file:
        file.write(b"\x89PNG new")
    assert plot.read_bytes() == b"\x89PNG new" and link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png"]
