"""``pilot.PilotCallback`` alone in a script: the run is unchanged, its folder is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pilot
from pilot.errors import FolderError
from pilot.folder import PilotFolder, read_json
from pilot.judge import judge, load_gates
from pilot.readers.registry import read
from pilot.view import load
from tests.engines.trainers import collate, make_trainer

ARGUMENTS: dict[str, Any] = {
    "dropout": 0.2,
    "gradient_accumulation_steps": 3,
    "max_steps": 18,
    "logging_nan_inf_filter": False,
}


def logged(trainer: Any) -> list[tuple[float, float, float]]:
    """Loss, norm and rate of every step, as the Trainer logs them."""
    logs = [log for log in trainer.state.log_history if "loss" in log]
    return [(log["loss"], log["grad_norm"], log["learning_rate"]) for log in logs]


def gates(root: Path) -> dict[str, str]:
    """The gates of a folder and their status."""
    view = load(root)
    return {g["name"]: g["status"] for g in judge(view, load_gates(view)).verdict["gates"]}


def test_the_run_is_unchanged_and_its_records_are_judged(tmp_path: Path) -> None:
    plain = make_trainer(tmp_path / "a", **ARGUMENTS)
    plain.train()
    watched = make_trainer(tmp_path / "b", **ARGUMENTS)
    watched.add_callback(pilot.PilotCallback(tmp_path / "records"))
    watched.train()
    assert logged(watched) == logged(plain) and len(logged(plain)) == 18
    view = load(tmp_path / "records")
    assert view.baseline is not None
    steps = view.baseline.steps
    assert [(r.grad_norm, r.learning_rate) for r in steps] == [n[1:] for n in logged(plain)]
    assert [r.loss for r in steps] == pytest.approx([n[0] for n in logged(plain)], rel=1e-6)
    assert [r.learning_rate for r in steps] == [
        view.plan.schedule.learning_rate_at(r.step) for r in steps
    ]
    places = {v.at: v.step for v in view.baseline.validations}
    assert places == {"before": 0, "warmup_end": 3, "run_end": 18}
    found = gates(tmp_path / "records")
    wanted = ("finite", "outcome", "movement", "validation", "coverage", "events")
    assert {name: found[name] for name in wanted} == dict.fromkeys(wanted, "pass")
    assert read(tmp_path / "records")[0].train["loss"].values.tolist() == [r.loss for r in steps]


def test_without_sets_there_are_records_and_no_validation(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, **ARGUMENTS)
    trainer.eval_dataset = None
    trainer.add_callback(pilot.PilotCallback(tmp_path / "records", validation_rows=0))
    trainer.train()
    assert gates(tmp_path / "records")["validation"] == "not_measured"


def test_an_exception_is_an_outcome_and_goes_on(tmp_path: Path) -> None:
    calls = []

    def failing(rows: Any) -> Any:
        calls.append(rows)
        if len(calls) == 60:
            raise KeyError("gone")
        return collate(rows)

    trainer = make_trainer(tmp_path, collator=failing, **ARGUMENTS)
    trainer.add_callback(pilot.PilotCallback(tmp_path / "records", validation_rows=0))
    with pytest.raises(KeyError):
        trainer.train()
    outcome = read_json(PilotFolder(tmp_path / "records").arm("baseline").outcome)
    assert outcome["status"] == "exception" and outcome["error_type"] == "KeyError"
    assert outcome["where"] == "collate" and len(outcome["row_ids"]) == 4
    view = load(tmp_path / "records")
    assert view.baseline is not None and len(view.baseline.steps) == outcome["last_step"]
    assert gates(tmp_path / "records")["outcome"] == "fail"


def test_a_resumed_run_goes_on_in_its_folder(tmp_path: Path) -> None:
    settings = {**ARGUMENTS, "save_strategy": "steps", "save_steps": 7}
    whole = make_trainer(tmp_path / "a", **settings)
    whole.add_callback(pilot.PilotCallback(tmp_path / "whole"))
    whole.train()
    again = make_trainer(tmp_path / "a", **settings)
    again.add_callback(pilot.PilotCallback(tmp_path / "whole"))
    again.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-7"))
    first, second = (
        load(tmp_path / "whole").baseline,
        PilotFolder(tmp_path / "whole").arm("baseline").steps(2),
    )
    assert first is not None and second.is_file()
    one = (tmp_path / "whole/arms/baseline/steps.001.jsonl").read_text().splitlines()[7:]
    assert second.read_text().splitlines() == one  # rows, losses, norms, updates: the same bits


def test_another_run_may_not_write_into_it(tmp_path: Path) -> None:
    for attempt in range(2):
        trainer = make_trainer(tmp_path / "a", **{**ARGUMENTS, "max_steps": 4})
        trainer.add_callback(pilot.PilotCallback(tmp_path / "records", validation_rows=0))
        if attempt:
            with pytest.raises(FolderError, match="another run"):
                trainer.train()
        else:
            trainer.train()
