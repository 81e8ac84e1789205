"""The workload that a configuration names: who owns the training loop."""

from __future__ import annotations

from pathlib import Path

from pilot.config import Config
from pilot.engines.workload import Workload
from pilot.folder import PilotFolder
from pilot.recipe import RecipeHandle


def open_workload(config: Config, module_path: Path, folder: PilotFolder | None = None) -> Workload:
    """Build what the user trains: data first; a native model is built by its engine.

    ``folder``: the pilot's, once it is surveyed: what was decided there holds for every arm.
    Whatever the user's code raises is passed on as it is.
    """
    if config.engine.name == "transformers":
        from pilot.engines.hf.build import require_transformers

        require_transformers()
        from pilot.engines.hf.workload import open_trainer

        return open_trainer(config, Path.cwd(), folder)
    from pilot.engines.native_workload import NativeWorkload

    handle = RecipeHandle(
        module_path=module_path,
        settings=config.recipe,
        sequence_length=config.batch.sequence_length,
        seed=config.pilot.seed,
    )
    return NativeWorkload(handle.build(), config, module_path, folder)
