"""The JSON of ``--json`` is an API: keys, their order, their types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pilot.diagnose.contract import to_json
from pilot.diagnose.study import UNREADABLE, Study
from pilot.series.advice import advice
from pilot.series.types import (
    ALARM_STATES,
    HIGH,
    KINDS,
    LOW,
    MEDIUM,
    NOTE,
    STATES,
    WARN,
)
from tests.diagnose.traces import diverged, event, series, study, trace

RUN_KEYS = [
    "source",
    "format",
    "num_steps",
    "first_step",
    "last_step",
    "series",
    "state",
    "alarm",
    "events",
]
EVENT_KEYS = [
    "kind",
    "series",
    "first_step",
    "last_step",
    "recovered_step",
    "severity",
    "size_sigma",
    "size_frac",
    "confidence",
    "look_first",
    "test",
    "then",
]


def strict(text: str) -> Any:
    """Parse JSON, refusing what is only JSON to Python."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def check_contract(tree: Any) -> None:
    """What the README promises, for any result; used by the tests of the command line too."""
    assert list(tree) == ["schema", "runs"]
    assert tree["schema"] == 1
    for run in tree["runs"]:
        is_unreadable = run["state"] == "unreadable"
        assert list(run) == RUN_KEYS + (["error"] if is_unreadable else [])
        assert isinstance(run["source"], str)
        assert isinstance(run["format"], str)
        assert type(run["num_steps"]) is int
        for key in ("first_step", "last_step"):
            assert run[key] is None if not run["num_steps"] else type(run[key]) is int
        assert all(type(count) is int for count in run["series"].values())
        assert run["state"] in STATES
        assert run["alarm"] is (run["state"] in ALARM_STATES)
        for found in run["events"]:
            check_event(found)


def check_event(found: Any) -> None:
    assert list(found) == EVENT_KEYS
    assert found["kind"] in KINDS
    assert type(found["first_step"]) is int
    assert type(found["last_step"]) is int
    assert found["recovered_step"] is None or type(found["recovered_step"]) is int
    assert found["severity"] in ("note", "warn", "fail")
    assert found["confidence"] in (LOW, MEDIUM, HIGH)
    for key in ("size_sigma", "size_frac"):
        assert found[key] is None or type(found[key]) is float
    assert all(found[key] for key in ("look_first", "test", "then"))


def test_a_whole_result() -> None:
    tree = strict(to_json([diverged()]))
    check_contract(tree)
    (run,) = tree["runs"]
    assert (run["source"], run["format"]) == ("run.json", "trainer_state")
    assert (run["num_steps"], run["first_step"], run["last_step"]) == (60, 10, 600)
    assert run["series"] == {"loss": 60, "grad_norm": 60, "learning_rate": 60}
    assert [found["severity"] for found in run["events"]] == ["fail", "warn", "note"]
    row = advice("never_recovers")
    assert run["events"][0] == {
        "kind": "never_recovers",
        "series": "loss",
        "first_step": 410,
        "last_step": 600,
        "recovered_step": None,
        "severity": "fail",
        "size_sigma": 41.25,
        "size_frac": 4.0,
        "confidence": "high",
        "look_first": row.look_first,
        "test": row.test,
        "then": row.then,
    }


def test_an_unreadable_path_has_every_key_and_says_why() -> None:
    lost = Study(source="x", path="x", trace=None, diagnosis=UNREADABLE, error="x: no such file")
    tree = strict(to_json([lost]))
    check_contract(tree)
    (run,) = tree["runs"]
    assert run["error"] == "x: no such file"
    assert (run["num_steps"], run["series"], run["events"]) == (0, {}, [])


@pytest.mark.parametrize("size", [float("nan"), float("inf"), float("-inf")])
def test_a_size_that_is_not_finite_is_null(size: float) -> None:
    found = event("single_spike", 3, 3, NOTE, size_sigma=size, size_frac=size)
    tree = strict(to_json([study(trace([1.0, float("nan")]), "healthy", found)]))
    check_contract(tree)
    assert tree["runs"][0]["events"][0]["size_sigma"] is None


def test_validation_sets_are_counted_by_name() -> None:
    made = trace([1.0] * 3, validations={"": series([1.0]), "a/b": series([1.0, 2.0])})
    (run,) = strict(to_json([study(made, "healthy")]))["runs"]
    assert run["series"] == {"loss": 3, "validation": 1, "validation/a/b": 2}


def test_steps_beyond_32_bits_stay_whole() -> None:
    big = 2**40
    made = trace([1.0, 2.0], [big, big + 1])
    tree = strict(to_json([study(made, "unstable", event("level_shift", big, big + 1, WARN))]))
    check_contract(tree)
    assert tree["runs"][0]["last_step"] == big + 1
    assert tree["runs"][0]["events"][0]["first_step"] == big


def test_control_characters_of_a_log_do_not_get_through() -> None:
    (run,) = strict(to_json([study(trace([1.0], source="a\x1b[31mb\x00"), "healthy")]))["runs"]
    assert run["source"] == "ab"
