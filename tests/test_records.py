"""Records: strict JSON, torn lines, joined attempts."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pilot.errors import DiskFull
from pilot.jsonl import JsonlWriter, parse, read_jsonl, to_json, write_json
from pilot.records import Evidence, Resource, join_attempts
from tests.trees import step_record


def test_non_finite_numbers_are_strings_and_come_back() -> None:
    line = to_json(step_record(3, loss=math.nan, grad_norm=math.inf, param_norm=-math.inf))
    data = json.loads(line)
    assert (data["loss"], data["grad_norm"], data["param_norm"]) == ("NaN", "Infinity", "-Infinity")
    assert math.isnan(parse(line)["loss"]) and parse(line)["grad_norm"] == math.inf


def test_floats_keep_all_their_bits(tmp_path: Path) -> None:
    record = step_record(1, loss=0.1 + 0.2, grad_norm=1e300, learning_rate=1 / 3)
    with JsonlWriter(tmp_path / "s.jsonl") as writer:
        writer.write(record)
    assert list(read_jsonl(tmp_path / "s.jsonl", type(record))) == [record]


def test_a_torn_last_line_is_ignored_and_then_cut(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with JsonlWriter(path) as writer:
        writer.write(Resource(kind="step", step=1, secs=1.0))
    with path.open("a") as file:
        file.write('{"kind":"step","step":2,"se')
    assert [r.step for r in read_jsonl(path, Resource)] == [1]
    with JsonlWriter(path) as writer:
        writer.write(Resource(kind="step", step=2, secs=1.0))
    assert [r.step for r in read_jsonl(path, Resource)] == [1, 2]


def test_a_missing_file_has_no_records(tmp_path: Path) -> None:
    assert list(read_jsonl(tmp_path / "no", Resource)) == []


def test_records_survive_kill_9(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from pilot.jsonl import JsonlWriter; from pilot.records import Resource\n"
        "w = JsonlWriter(Path(sys.argv[1]))\n"
        "for s in range(5): w.write(Resource(kind='step', step=s, secs=0.0))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "r.jsonl"
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [r.step for r in read_jsonl(path, Resource)] == [0, 1, 2, 3, 4]


def test_the_last_attempt_wins_from_its_first_step_on() -> None:
    first = [step_record(s, loss=1.0) for s in (1, 2, 3, 4)]
    second = [step_record(s, loss=2.0) for s in (3, 4)]
    third = [step_record(s, loss=3.0) for s in (4, 5)]
    joined = join_attempts([first, second, [], third])
    assert [(r.step, r.loss) for r in joined] == [(1, 1.0), (2, 1.0), (3, 2.0), (4, 3.0), (5, 3.0)]
    assert join_attempts([]) == []


def test_unknown_keys_of_newer_writers_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text('{"experiment":"x","scale":"full","step":1,"values":{"a":"NaN"},"new":3}\n')
    (evidence,) = read_jsonl(path, Evidence)
    assert math.isnan(evidence.values["a"])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_said(tmp_path: Path) -> None:
    path = tmp_path / "full.jsonl"
    path.symlink_to("/dev/full")
    writer = JsonlWriter.__new__(JsonlWriter)
    writer.path = path
    writer._file = path.open("a", encoding="utf-8")
    with pytest.raises(DiskFull, match="what was measured until then is kept"):
        writer.write(Resource(kind="step", step=1, secs=1.0))


def test_json_files_are_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"x": 1.0, "y": [math.nan]})
    assert json.loads(path.read_text()) == {"x": 1.0, "y": ["NaN"]}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
