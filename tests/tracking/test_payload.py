from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from pilot.folder import PilotFolder
from pilot.judge import judge, load_gates
from pilot.tracking import payload
from tests.factories import build_view, write_view
from tests.tracking.pilots import five_arms


def test_the_pilots_numbers_are_finite_and_rounded() -> None:
    view = build_view()
    verdict = judge(view, load_gates(view)).verdict
    values = payload.scalars(view, verdict)
    assert values["pilot/val_change"] == -1.0
    assert values["pilot/final_loss"] == 2.0
    assert values["pilot/nonfinite_steps"] == 0
    assert values["pilot/steps"] == 48
    odd = {"noise": {"sd": math.nan}, "cost": {"ratio": 1.23456789, "num_steps": None}}
    values = payload.scalars(view, {**verdict, **odd})
    assert values["pilot/cost_ratio"] == 1.23457
    assert not {"pilot/noise_sd", "pilot/cost_steps"} & set(values)


def test_no_baseline_gives_no_loss_rather_than_zero() -> None:
    values = payload.scalars(dataclasses.replace(build_view(), arms={}), {})
    assert values["pilot/steps"] == 0
    assert not {"pilot/val_change", "pilot/final_loss"} & set(values)


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


def test_tags_say_the_verdict(tmp_path: Path) -> None:
    view = build_view()
    verdict = {**judge(view, load_gates(view)).verdict, "why": "x\x1b[31m\ny token=abcdefgh"}
    tags = payload.tags(view, verdict, tmp_path)
    assert tags["pilot.verdict"] == "GO"
    assert tags["pilot.role"] == "campaign"
    assert tags["pilot.why"] == "x y token=<hidden>"
    assert tags["pilot.cause"] == tags["pilot.remedy"] == "none"
    assert tags["pilot.recipe"] == "synthetic"
    assert tags["pilot.changed"] == "1 arm"
    assert payload.tags(five_arms(), verdict, tmp_path)["pilot.changed"] == "4 arms"
    assert tags["mlflow.runColor"] == "#2e7d32"
    remedy = {"override": "optim.max_grad_norm=1.0", "status": "proven by arm clip 1"}
    cause = {"category": "rate", "sentence": "too high"}
    tags = payload.tags(view, {**verdict, "remedy": remedy, "cause": cause}, tmp_path)
    assert tags["pilot.remedy"] == "optim.max_grad_norm=1.0 (proven by arm clip 1)"
    assert tags["pilot.cause"] == "rate: too high"
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
