"""A native recipe without a validation set: rows that no step draws are one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pilot.config import Config
from pilot.data.choose import choose_order
from pilot.engines.base import Program, StepRequest
from pilot.engines.native_workload import NativeWorkload
from pilot.folder import PilotFolder
from pilot.jsonl import write_json
from pilot.plan import make_plan
from pilot.records import Outcome
from pilot.survey import write_rows
from pilot.view import RowTable, load_rows
from tests.engines.collect import Collect
from tests.recipes_for_tests import TinyRecipe
from tests.trees import config_tree

PILOT: dict[str, Any] = {"max_extension_steps": 6, "validation_rows": 16}


def opened(
    tmp_path: Path, num_rows: int, folder: PilotFolder | None = None, **pilot: Any
) -> tuple[NativeWorkload, RowTable]:
    """A workload without a validation set, and its row table: 21 steps and 6 more, of 8 rows."""
    recipe = TinyRecipe(num_rows=num_rows)
    recipe.validation = {}
    config = Config.model_validate(config_tree(pilot={**PILOT, **pilot}))
    work = NativeWorkload(recipe, config, Path("tiny.py"), folder)  # type: ignore[arg-type]
    write_rows(PilotFolder(tmp_path).rows, work.facts(), ["a", "b"])
    return work, load_rows(PilotFolder(tmp_path), {"source_names": ["a", "b"]})


@pytest.mark.parametrize("data", ["representative", "prefix"])
def test_undrawn_rows_are_the_validation_set_of_every_arm(tmp_path: Path, data: str) -> None:
    folder = PilotFolder(tmp_path)
    work, rows = opened(tmp_path, 300, data=data)
    said = work.hold_out(folder, rows)
    assert said is not None and said["mode"] == "undrawn" and said["num_rows"] == 32
    write_json(folder.survey, {"held_out": said})
    held = np.load(folder.held_out)
    plan = make_plan(work.config, {"num_train_rows": 300, "validation_rows": work.validation_rows})
    order, _ = choose_order(work.config, plan, rows)
    assert set(held.tolist()).isdisjoint(order.tolist()) and len(order) >= 27 * 8
    arm, _ = opened(tmp_path, 300, folder, data=data)
    expected = [arm.recipe.train[row] for row in held]
    assert dict(arm.recipe.validation) == {"held_out": expected}
    engine = arm.make_engine(order=order, first_step=1, observer=Collect())

    def program() -> Program:
        engine.request_validation("before")
        yield StepRequest(learning_rate=0.1)
        engine.flush()
        return Outcome(status=Outcome.COMPLETED, last_step=1)

    engine.run(program())
    observer: Any = engine.observer
    assert observer.validations[0].name == "held_out"
    assert len(observer.validations[0].loss_sums) == 16


def test_rows_that_are_all_drawn_are_refused(tmp_path: Path) -> None:
    work, rows = opened(tmp_path, 220)
    said = work.hold_out(PilotFolder(tmp_path), rows)
    assert said is not None and "the pilot draws nearly every row" in said["refused"]
    assert work.validation_rows == {} and not PilotFolder(tmp_path).held_out.exists()


def test_rows_before_a_later_start_are_not_held_out(tmp_path: Path) -> None:
    recipe = TinyRecipe(num_rows=600)
    recipe.validation = {}
    run = {"schedule_steps": 400, "warmup_steps": 5, "start_step": 20}
    config = Config.model_validate(config_tree(full_run=run, pilot={**PILOT, "data": "prefix"}))
    work = NativeWorkload(recipe, config, Path("tiny.py"))  # type: ignore[arg-type]
    write_rows(PilotFolder(tmp_path).rows, work.facts(), ["a", "b"])
    rows = load_rows(PilotFolder(tmp_path), {"source_names": ["a", "b"]})
    work.hold_out(PilotFolder(tmp_path), rows)
    from pilot.data.order import full_order

    trained = full_order(600, 20 * 8, config.pilot.data_seed, True)
    assert set(np.load(PilotFolder(tmp_path).held_out).tolist()).isdisjoint(trained.tolist())
