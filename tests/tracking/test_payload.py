from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from pilot.folder import PilotFolder
from pilot.judge import judge, load_gates
from pilot.records import StepRecord
from pilot.tracking import payload
from tests.factories import build_view, make_validation, with_baseline, write_view


def _broken(record: StepRecord) -> StepRecord:
    if record.step < 20:
        return record
    return dataclasses.replace(
        record, loss=math.nan, grad_norm=math.inf, finite_loss=False, finite_grads=False
    )


def test_series_hold_finite_values_in_the_order_of_steps() -> None:
    view = build_view(baseline={"last_step": 21, "edit": _broken})
    points = payload.series(view)
    assert all(math.isfinite(p.value) for p in points)
    assert [p.step for p in points] == sorted(p.step for p in points)
    assert [p.step for p in points if p.name == "train/loss"] == list(range(1, 20))
    assert [p.step for p in points if p.name == "train/learning_rate"] == list(range(1, 22))
    assert [p.step for p in points if p.name == "val/held_out"] == [0, 12]
    assert all(a.secs <= b.secs for a, b in zip(points, points[1:], strict=False))


def test_a_repeated_validation_counts_once() -> None:
    view = build_view()
    assert view.baseline is not None
    again = make_validation("before", 0, 2.5)
    view = with_baseline(view, validations=(*view.baseline.validations, again))
    points = [p for p in payload.series(view) if p.name == "val/held_out" and p.step == 0]
    assert [round(p.value, 3) for p in points] == [round(again.loss, 3)]


def test_scalars_are_finite_and_rounded() -> None:
    view = build_view(baseline={"last_step": 21, "edit": _broken})
    verdict = judge(view, load_gates(view)).verdict
    values = payload.scalars(view, verdict)
    assert values["pilot/nonfinite_steps"] == 2
    assert values["pilot/first_nonfinite_step"] == 20
    assert values["pilot/gates_failed"] >= 1
    assert "pilot/val_change" not in values  # no final validation: nothing, rather than a zero
    assert "pilot/first_nonfinite_step" not in payload.scalars(build_view(), verdict)
    assert payload.scalars(build_view(), verdict)["pilot/val_change"] == -1.0


def test_fewer_than_thirty_metric_names_whatever_the_recipe_has() -> None:
    view = build_view()
    sets = [
        make_validation("before", 0, 3.0, name=f"s/{i} (x)", primary=i == 40) for i in range(60)
    ]
    view = with_baseline(view, validations=tuple(sets))
    gates = [{"name": f"g{i}", "status": "pass"} for i in range(40)]
    arms = [{"name": f"a{i}", "final_loss": 1.0} for i in range(40)]
    names = {p.name for p in payload.series(view)}
    names |= set(payload.scalars(view, {"gates": gates, "arms": arms}))
    assert len(names) < 30
    assert "val/s_40 _x_" in names  # the primary set always has room


def test_no_baseline_gives_no_points() -> None:
    view = dataclasses.replace(build_view(), arms={})
    assert payload.series(view) == []
    assert payload.scalars(view, {})["pilot/steps"] == 0


def test_params_are_flat_and_without_secrets() -> None:
    found = payload.params(
        {
            "recipe": {"hub_token": "letmein", "pad_token": "<pad>", "files": ["a", "b"]},
            "list": [{"x": 1}, {"x": None}],
            "uri": "http://u:p@h",
            "empty": "",
            "odd key %": True,
            "long": "x" * 9000,
            "control": "a\x1b[31mb",
        }
    )
    assert found["recipe.hub_token"] == "<hidden>"
    assert found["recipe.pad_token"] == "<pad>"
    assert found["recipe.files"] == '["a", "b"]'
    assert found["list.0.x"] == "1" and found["list.1.x"] == "null"
    assert found["uri"] == "http://<hidden>@h"
    assert found["empty"] == '""'
    assert found["odd key _"] == "true"
    assert len(found["long"]) == 6000 and found["long"].endswith("...")
    assert found["control"] == "ab"


def test_names_are_legal_and_differ() -> None:
    assert payload.free_name("/a//b..c(d)", []) == "_a_b_c_d_"
    assert payload.free_name("a(", ["a_", "a__2"]) == "a__3"


def test_tags_say_the_verdict(tmp_path: Path) -> None:
    view = build_view()
    verdict = {**judge(view, load_gates(view)).verdict, "why": "x\x1b[31m\ny token=abcdefgh"}
    tags = payload.tags(view, verdict, tmp_path)
    assert tags["pilot.verdict"] == "GO"
    assert tags["pilot.role"] == "campaign"
    assert tags["pilot.why"] == "x y token=<hidden>"
    assert tags["pilot.cause"] == tags["pilot.remedy"] == "none"
    assert tags["mlflow.runColor"] == "#2e7d32"
    verdict["fingerprint"] = {"hash": "e4f5a6b99"}
    assert payload.run_name(verdict) == "GO · e4f5a6b"


def test_files_are_records_never_checkpoints_or_rows(tmp_path: Path) -> None:
    root = write_view(tmp_path, build_view())
    folder = PilotFolder(root)
    folder.report.write_text("r")
    (folder.arm("baseline").checkpoints).mkdir(exist_ok=True)
    (folder.arm("baseline").checkpoints / "state.pt").write_bytes(b"x")
    folder.arm("baseline").log.write_text("a row of data")
    names = set(payload.record_files(folder)) | set(payload.text_files(folder, log_text=False))
    assert {"report.md", "arms/baseline/steps.001.jsonl", "arms/lr_x1_3/resources.jsonl"} <= names
    assert not [
        n for n in names if "checkpoint" in n or "rows" in n or "log" in n or "outcome" in n
    ]
    assert "arms/baseline/log.txt" in payload.text_files(folder, log_text=True)
