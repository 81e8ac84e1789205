"""Whether the run of a pilot that is on its way is still the one that it was planned for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pilot.config import Config
from pilot.errors import FolderError
from pilot.fingerprint import make_fingerprint, surveyed_sets
from pilot.fingerprint_differences import differences
from pilot.folder import PilotFolder, read_json
from pilot.recipe import RecipeHandle
from pilot.user_checkpoint import files_of as checkpoint_files


def fingerprint_of(folder: PilotFolder, config: Config) -> dict[str, Any]:
    """The fingerprint of the surveyed pilot in ``folder``, as code and data are now."""
    facts = read_json(folder.start)
    handle = RecipeHandle(
        module_path=Path(facts["module_path"]),
        settings=config.recipe,
        sequence_length=config.batch.sequence_length,
        seed=config.pilot.seed,
    )
    tree = yaml.safe_load(folder.config.read_text(encoding="utf-8"))
    survey = read_json(folder.survey)
    files = [] if config.recipe.get("trainer") else handle.input_files()
    files += checkpoint_files(config.recipe, Path(facts["cwd"]))
    return make_fingerprint(
        tree,
        handle.module_path,
        files,
        world_size=config.launcher.num_processes,
        data_sets=surveyed_sets(folder.survey),
        trainer=survey.get("trainer"),
        imported=survey.get("imported") or (),
    )


def refuse_changes(folder: PilotFolder, config: Config) -> None:
    """Refuse to go on with other code or data than the pilot began with.

    Raises:
        FolderError: with everything that differs.
    """
    lines = differences(read_json(folder.fingerprint), fingerprint_of(folder, config))
    if lines:
        what = "\n".join(["the run changed since this pilot began:", *lines])
        raise FolderError(
            folder.root, what, remedy="put it back and resume, or start a new pilot elsewhere"
        )
