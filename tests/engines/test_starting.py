"""An arm begins only on the rows that were surveyed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pilot.engines.hf.workload import TrainerWorkload
from pilot.engines.starting import require_same_rows
from pilot.errors import UsageError
from pilot.folder import PilotFolder
from pilot.jsonl import write_json
from tests.engines.trainers import HELD, TRAIN, config_for, make_trainer
from tests.factories import build_view


def workload(tmp_path: Path, **sets: Any) -> TrainerWorkload:
    trainer = make_trainer(tmp_path, **sets)
    config = config_for(trainer)
    config.recipe["trainer"] = "train.py"
    return TrainerWorkload(trainer, config, {})


@pytest.mark.parametrize(
    ("sets", "line"),
    [
        ({"train": TRAIN[:-1]}, "gives 31 training rows"),
        ({"train": TRAIN[::-1]}, "train_dataset: 32 rows with other content"),
        ({"evaluate": HELD[:-1]}, "eval_dataset: 12 rows -> 11"),
    ],
    ids=["fewer", "turned", "validation"],
)
def test_other_rows_are_refused(tmp_path: Path, sets: dict[str, Any], line: str) -> None:
    folder, baseline = PilotFolder(tmp_path), build_view().baseline
    assert baseline is not None
    surveyed = workload(tmp_path)
    survey = {"num_train_rows": 32, "data": surveyed.digests()}
    write_json(folder.survey, survey)
    require_same_rows(baseline.job, workload(tmp_path), folder)
    with pytest.raises(UsageError) as caught:
        require_same_rows(baseline.job, workload(tmp_path, **sets), folder)
    assert line in str(caught.value)
