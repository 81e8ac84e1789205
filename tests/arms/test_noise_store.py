"""Stored noise floors: found again for the same training only; what is damaged is measured anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pilot.arms.noise_store import find_floor, keep_floor, store_key
from pilot.config import Config
from tests.trees import config_tree

FLOOR = {"sd_validation": 0.01, "sd_steps": 0.02, "num_runs": 3, "seed_matters": True}
FINGERPRINT: dict[str, Any] = {
    "config": {"optim.learning_rate": 0.1, "pilot.seed": 0, "pilot.data_seed": 0},
    "code": {"recipe_sha256": "1"},
    "data": [],
    "packages": {"torch": "2"},
    "world_size": 1,
}


def key(config: Config | None = None, **parts: Any) -> str:
    return store_key({**FINGERPRINT, **parts}, config or Config.model_validate(config_tree()))


def key_on(device: str, num_threads: int | None) -> str:
    config = Config.model_validate(config_tree())
    return store_key(FINGERPRINT, config, device=device, num_threads=num_threads)


def test_a_floor_is_found_again(tmp_path: Path) -> None:
    path = keep_floor(tmp_path / "noise", "tiny", key(), FLOOR)
    assert path.parent == tmp_path / "noise" and path.name.startswith("tiny-")
    found = find_floor(tmp_path / "noise", "tiny", key())
    assert found is not None and {name: found[name] for name in FLOOR} == FLOOR


def test_the_key_is_that_of_the_training() -> None:
    same_but_the_seed = {**FINGERPRINT["config"], "pilot.seed": 7}
    assert key(config=None) == store_key(
        {**FINGERPRINT, "config": same_but_the_seed}, Config.model_validate(config_tree())
    )
    others = [
        key(packages={"torch": "3"}),
        key(code={"recipe_sha256": "2"}),
        key(data=[{"name": "x"}]),
        store_key(
            {**FINGERPRINT, "config": {**FINGERPRINT["config"], "optim.learning_rate": 0.2}},
            Config.model_validate(config_tree()),
        ),
        key(Config.model_validate(config_tree(pilot={"min_peak_steps": 17}))),
        key(Config.model_validate(config_tree(pilot={"validation_rows": 9}))),
        key_on("cpu", None),
        key_on("cpu", 1),
        key_on("cuda", None),
    ]
    assert len({key(), *others}) == 1 + len(others)
    assert key_on("", None) == key() and key_on("cpu", 1) == key_on("cpu", 1)


def test_what_cannot_be_used_is_no_floor(tmp_path: Path) -> None:
    assert find_floor(tmp_path / "none", "tiny", key()) is None
    path = keep_floor(tmp_path, "tiny", key(), FLOOR)
    for text in ("", "[]", "{", '{"key": "other", "sd_validation": 1}', "\x00\xff"):
        path.write_text(text, encoding="latin-1")
        assert find_floor(tmp_path, "tiny", key()) is None
