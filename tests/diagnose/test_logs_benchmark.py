"""The benchmark over labelled logs: how labels are read, what it counts, when it fails."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from pilot.series.types import KINDS
from tests.benchmarks import logs
from tests.diagnose.traces import event, healthy_loss, write_state

HEAD = "file\tlabel\tevent_steps\talarm_expected\n"


def row(**more: object) -> logs.Row:
    fields: dict[str, object] = {
        "file": "x.json",
        "label": "diverge_nan",
        "alarm_expected": "yes",
        "event_steps": "NaN from step 430 to 1000 (58 records)",
        "state": "diverged",
        "alarm": True,
        "main": event("nonfinite", 430, 1000),
        "main_interval": 10,
        "secs": 0.1,
    }
    return logs.Row(**{**fields, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("spike 370-400 (2.86@390, back 410)", [(370, 400), (390, 390), (410, 410)]),
        ("NaN from step 430 to 1000 (58 records)", [(430, 430), (1000, 1000)]),
        ("iteration 3: 12.4 -> 44.2, peak 48.1@4, grad 1e4", [(3, 3), (4, 4)]),
        ("eval_g0 min 1.114@401", [(401, 401)]),
        ("-", []),
    ],
)
def test_the_numbers_of_a_label(text: str, places: list[tuple[int, int]]) -> None:
    assert logs.stretches(text) == places


@pytest.mark.parametrize(("first", "fits"), [(430, True), (410, True), (409, False), (700, False)])
def test_two_logging_intervals_of_slack(first: int, fits: bool) -> None:
    assert row(main=event("nonfinite", first, 1000)).step_fits is fits


def test_a_label_without_steps_is_not_judged_by_its_step() -> None:
    assert row(event_steps="-").step_fits is None
    assert row(main=None).step_fits is None


def test_every_disagreement_is_one_line() -> None:
    wrong = [
        row(alarm=False, file="a"),
        row(main=event("single_spike", 430, 430), file="b"),
        row(main=event("nonfinite", 10, 20), file="c"),
        row(label="healthy", alarm_expected="no", state="no_progress", alarm=False, file="d"),
    ]
    lines = logs.disagreements([row(), *wrong])
    assert [line.split(":")[0] for line in lines] == ["a", "b", "c", "d"]
    assert "alarm missing" in lines[0]
    assert "kind" in lines[1]
    assert "step (label: NaN from step 430" in lines[2]


def test_targets() -> None:
    good = [row() for _ in range(30)]
    assert all(met for met, _ in logs.targets(good))
    false_alarm = row(label="healthy", alarm_expected="no", main=None)
    assert [met for met, _ in logs.targets([*good, false_alarm])] == [True, False, True, True]
    missed = [row(alarm=False, main=None) for _ in range(4)]
    assert [met for met, _ in logs.targets([*good, *missed])] == [False, True, False, True]


def test_every_kind_of_a_label_exists() -> None:
    assert {kind for kinds in logs.KINDS_OF_LABEL.values() for kind in kinds} <= set(KINDS)


def test_a_folder_is_read_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_state(tmp_path / "a.json", healthy_loss())
    write_state(tmp_path / "b.json", healthy_loss()[:60] + [float("nan")] * 60)
    lines = ["a.json\thealthy\t-\tno", "b.json\tdiverge_nan\tNaN from 61\tyes"]
    (tmp_path / "INDEX.tsv").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    with gzip.open(tmp_path / "t.jsonl.gz", "wt") as file:
        file.write(json.dumps({"id": "h0", "loss": healthy_loss(400)}) + "\n")
    words = ["logs", str(tmp_path), "--traces", str(tmp_path / "t.jsonl.gz")]
    monkeypatch.setattr(sys, "argv", words)
    assert logs.main() == 0
    out = capsys.readouterr().out
    assert "alarm as labelled: 2 of 2" in out
    assert "disagreements:\n  none" in out
    assert "0.000 events above a note per 10,000 steps (0 in 400, 0 FAIL)" in out
    (tmp_path / "INDEX.tsv").write_text(HEAD + lines[1].replace("yes", "no") + "\n")
    assert logs.main() == 1
    assert "b.json: diverge_nan: alarm given" in capsys.readouterr().out
