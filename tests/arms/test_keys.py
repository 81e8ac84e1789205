"""Which keys can be an arm's variable."""

from __future__ import annotations

import pytest

from pilot.arms.keys import allowed, must_not_follow, no_influence, refusal
from pilot.config import Config
from pilot.mistakes import flat_keys
from tests.factory_parts import config_tree

FREE = [
    "recipe.anything",
    "recipe.modules",
    "full_run.warmup_steps",
    "optim._target_",
    "optim.betas",
    "batch.micro_batch_size",
    "precision",
    "pilot.seed",
    "pilot.data_seed",
    "tracking.uri",
    "checks.skip",
    "launcher.max_parallel",
    "nothing.known",
]
COMMON = [
    "out_dir",
    "arms",
    "arms.add",
    "gates.strict",
    "engine.device",
    "pilot",
    "pilot.min_peak_steps",
    "pilot.validation_rows",
    "pilot.seeds",
    "recipe.module",
    "full_run.start_step",
]


@pytest.mark.parametrize("key", FREE)
def test_a_key_that_an_arm_reads_is_free(key: str) -> None:
    assert refusal(key) == ""
    assert not must_not_follow(key)


@pytest.mark.parametrize("key", COMMON)
def test_a_key_that_all_arms_share_is_refused(key: str) -> None:
    assert refusal(key).startswith("cannot be an arm: it ")
    assert must_not_follow(key) is (key.split(".")[0] not in ("arms", "gates", "out_dir"))


def test_every_section_of_the_schema_is_decided() -> None:
    keys = [*flat_keys(config_tree()), *Config.model_fields]
    unread = {key for key in keys if no_influence(key)}
    assert {key.split(".")[0] for key in unread} == {"recipe", "tracking", "checks", "launcher"}
    assert "recipe.name" in unread and "recipe.module" not in unread
    sections = {key.split(".")[0] for key in keys if not refusal(key) and key not in unread}
    assert sections == {"recipe", "full_run", "optim", "batch", "precision"}
    for section in sections:
        assert section in allowed()
