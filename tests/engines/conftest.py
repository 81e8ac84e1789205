"""A native engine over the tiny recipe, with every option of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pilot.config import Config
from pilot.engines.native import NativeEngine
from tests.engines.collect import Collect
from tests.recipes_for_tests import TinyRecipe
from tests.trees import config_tree


@pytest.fixture
def make_engine() -> Callable[..., NativeEngine]:
    """Build an engine: keyword arguments are sections of the configuration."""

    def make(recipe: TinyRecipe | None = None, **sections: Any) -> NativeEngine:
        config = Config.model_validate(config_tree(**sections))
        order = np.tile(np.random.default_rng(0).permutation(64), 8)
        return NativeEngine(
            recipe or TinyRecipe(dropout=0.0),
            config,
            order=order,
            first_step=1,
            observer=Collect(),
        )

    return make
