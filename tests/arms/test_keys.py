"""Which keys can be an arm's variable."""

from __future__ import annotations

import pytest

from pilot.arms.keys import allowed, must_not_follow, no_influence, refusal, remedy
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


@pytest.mark.parametrize("key", ["pilot.data_seed", "recipe.shuffle"])
def test_the_order_of_the_rows_is_shared(key: str) -> None:
    assert refusal(key) == "cannot be an arm: the order of the rows is shared by all arms"
    assert remedy(key) == f"pilot it by itself: {key}=VALUE"
    assert must_not_follow(key) and key not in allowed()
    assert remedy("out_dir").startswith("arms can change recipe.*")


def test_every_section_of_the_schema_is_decided() -> None:
    keys = [*flat_keys(config_tree()), *Config.model_fields]
    unread = {key for key in keys if no_influence(key)}
    assert {key.split(".")[0] for key in unread} == {"tracking", "checks", "launcher"}
    assert no_influence("recipe.name") == ""  # the recipe's build() reads it
    sections = {key.split(".")[0] for key in keys if not refusal(key) and key not in unread}
    assert sections == {"recipe", "full_run", "optim", "batch", "precision"}
    for section in sections:
        assert section in allowed()
