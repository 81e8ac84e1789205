"""The files of judging: the same bytes again, strict JSON, other gates."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from pilot.errors import ConfigError
from pilot.judge import Judgement, judge, load_gates, write
from pilot.view import PilotView, load
from tests.factories import GATE_DEFAULTS, build_view, make_gates, write_pilot, write_view

FILES = ("findings.jsonl", "result.json", "verdict.json", "report.md")


def judged(view: PilotView, **gates: Any) -> Judgement:
    return judge(view, make_gates(**gates))


def nan_from(step: int) -> dict[str, Any]:
    def edit(record: Any) -> Any:
        return dataclasses.replace(record, loss=math.nan) if record.step >= step else record

    return {"edit": edit, "last_step": step + 1}


def test_the_same_bytes_again(tmp_path: Path) -> None:
    root = write_pilot(tmp_path / "one", baseline=nan_from(20))
    written = []
    for _ in range(2):
        view = load(root)
        write(root, judge(view, load_gates(view)))
        written.append({name: (root / name).read_bytes() for name in FILES})
        for name in FILES:
            (root / name).unlink()
    assert written[0] == written[1]
    other = write_pilot(tmp_path / "elsewhere" / "two", baseline=nan_from(20))
    view = load(other)
    write(other, judge(view, load_gates(view)))
    assert {name: (other / name).read_bytes() for name in FILES} == written[0]
    assert str(tmp_path).encode() not in b"".join(written[0].values())


def test_the_folder_gives_the_verdict_of_the_view(tmp_path: Path) -> None:
    view = build_view(baseline=nan_from(20))
    loaded = load(write_view(tmp_path / "p", view))
    assert (
        dataclasses.replace(loaded, rows=view.rows).arms["baseline"].steps[0]
        == (view.arms["baseline"].steps[0])
    )
    assert loaded.plan == view.plan
    write(tmp_path / "p", judged(loaded))
    written = json.loads((tmp_path / "p" / "verdict.json").read_text())
    assert written == json.loads(json.dumps(judged(view).verdict))


def test_files_hold_no_bare_nan(tmp_path: Path) -> None:
    root = write_pilot(tmp_path / "p", baseline={"final": math.nan})
    write(root, judged(load(root)))
    for name in FILES[1:3]:
        json.loads((root / name).read_text(), parse_constant=pytest.fail)
    for line in (root / "findings.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    assert '"NaN"' in (root / "result.json").read_text()


def test_floats_have_six_digits() -> None:
    text = json.dumps(judged(build_view()).verdict)
    numbers = [n for n in text.replace(",", " ").replace("}", " ").split() if "." in n]
    digits = [n.split("e")[0].lstrip("-0.").replace(".", "") for n in numbers if n[-1].isdigit()]
    assert digits and max(len(d) for d in digits) <= 6


def test_gates_of_the_folder_and_of_a_file(tmp_path: Path) -> None:
    root = write_pilot(tmp_path / "p", baseline={"final": 2.9}, lower={"final": 2.0})
    view = load(root)
    assert judge(view, load_gates(view)).word == "NO-GO"
    looser = {**GATE_DEFAULTS, "progress": {"min_progress": 0.05, "max_gap_frac": 0.9}}
    for tree in (looser, {"gates": looser}):
        path = tmp_path / "gates.yaml"
        path.write_text(yaml.safe_dump(tree))
        gates = load_gates(view, path)
        assert gates.progress.min_progress == 0.05
        assert judge(view, gates).word == "GO"


def test_all_mistakes_of_a_gates_file_at_once(tmp_path: Path) -> None:
    view = build_view()
    wrong = {
        **GATE_DEFAULTS,
        "finite": {"max_skipped_frac": 2.0},
        "progres": {},
        "waive": {"nonsense": "because"},
    }
    path = tmp_path / "gates.yaml"
    path.write_text(yaml.safe_dump(wrong))
    with pytest.raises(ConfigError) as caught:
        load_gates(view, path)
    assert [m.key for m in caught.value.mistakes] == [
        "gates.finite.max_skipped_frac",
        "gates.progres",
    ]
    path.write_text(yaml.safe_dump({**GATE_DEFAULTS, "waive": {"nonsense": "because"}}))
    with pytest.raises(ConfigError, match=r"gates\.waive\.nonsense"):
        load_gates(view, path)


@pytest.mark.parametrize("text", ["", "[1, 2]", "just words", "a: [", "1: 2", "\x00"])
def test_a_file_that_is_no_gates_file_is_a_config_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gates.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"--gates = .*gates\.yaml"):
        load_gates(build_view(), path)
    with pytest.raises(ConfigError, match="must be readable YAML"):
        load_gates(build_view(), tmp_path / "absent.yaml")
