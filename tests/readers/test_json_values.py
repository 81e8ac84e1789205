"""JSON that the standard decoder refuses costs only the value that is odd."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest

from pilot.readers.json_values import loads
from pilot.readers.registry import read

DEEP = '{"a":' * 5000 + "1" + "}" * 5000


def test_a_deep_value_becomes_null_and_the_rest_stays() -> None:
    found = loads(f' {{"step": 1, "x": {DEEP}, "s": "}}\\"{{", "loss": 2.5}} ')
    assert isinstance(found, dict)
    assert (found["step"], found["s"], found["loss"]) == (1, '}"{', 2.5)
    depth, value = 0, found["x"]
    while isinstance(value, dict):
        depth, value = depth + 1, value["a"]
    assert (depth, value) == (31, None)


def test_a_huge_integer_is_infinite() -> None:
    assert loads(f"[-{'9' * 5000}, 7]") == [-math.inf, 7]


@pytest.mark.parametrize("text", ["", "{", '{"a": 1} x', "[" * 5000, DEEP[:-1]])
def test_what_is_no_json_is_still_none(text: str) -> None:
    with pytest.raises(ValueError):
        loads(text)


def test_records_with_a_deep_value_are_read_and_quickly(tmp_path: Path) -> None:
    rows = [f'{{"step": {i}, "loss": {3 - i / 50}, "x": {DEEP}}}' for i in range(40)]
    (tmp_path / "state.json").write_text(f'{{"log_history": [{", ".join(rows)}]}}')
    (tmp_path / "log.jsonl").write_text("\n".join(rows))
    (tmp_path / "log.json").write_text(json.dumps({"a": 1})[:-1] + f', "b": [{", ".join(rows)}]}}')
    begin = time.process_time()
    for name in ("state.json", "log.jsonl", "log.json"):
        (trace,) = read(tmp_path / name)
        assert trace.train["loss"].steps.tolist() == list(range(40)), name
    assert time.process_time() - begin < 3.0
