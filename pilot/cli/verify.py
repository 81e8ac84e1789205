"""``verify``: is the verdict in a folder a GO, and was it made for exactly this run?"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from pilot.bound import GO, NO_GO, BoundVerdict, read_bound
from pilot.cli.compose import Composed, compose
from pilot.entry import raise_left_error
from pilot.errors import ExitCode, PilotError
from pilot.fingerprint import make_fingerprint, surveyed_sets
from pilot.fingerprint_differences import differences, without_own_code
from pilot.folder import PilotFolder
from pilot.jsonl import write_json, write_text
from pilot.launchers.processes import run_process
from pilot.recipe import RecipeHandle
from pilot.user_checkpoint import files_of as checkpoint_files


def verify_run(root: Path, overrides: Sequence[str], config_dir: Path | None) -> ExitCode:
    """Compare the pilot in ``root`` with the run given by ``overrides`` and print what differs.

    Returns:
        GO only for a GO with an equal fingerprint; NO_GO for a NO-GO; else INCONCLUSIVE.

    Raises:
        FolderError: there is no verdict in ``root``.
        ConfigError: the run given is not a valid one.
    """
    bound = read_bound(root)
    composed = compose(overrides, Path.cwd(), config_dir)
    of_trainer = bool(composed.tree["recipe"].get("trainer"))
    lines = differences(bound.made_for, _fingerprint(composed, bound))
    lines = [*(without_own_code(lines) if of_trainer else lines), *bound.mismatch]
    verdict = bound.word
    print(f"verdict in {bound.root}: {verdict}")
    if not lines:
        print("it was made for exactly this run")
    else:
        print(f"it was made for another run; what differs: {len(lines)}")
        print("\n".join(f"  {line}" for line in lines))
    if of_trainer:
        print(
            "its model, optimizer and the rates of all steps were not compared, nor the run's own "
            f"script: pilot.PilotCallback(verdict={str(root)!r}) in that script does so"
        )
    if verdict == NO_GO:
        return ExitCode.NO_GO
    return ExitCode.GO if verdict == GO and not lines else ExitCode.INCONCLUSIVE


def _fingerprint(composed: Composed, bound: BoundVerdict) -> dict[str, object]:
    tree = composed.tree
    handle = RecipeHandle(
        module_path=composed.module_path,
        settings=tree["recipe"],
        sequence_length=tree["batch"]["sequence_length"],
        seed=tree["pilot"]["seed"],
    )
    has_trainer = bool(tree["recipe"].get("trainer"))
    files = [] if has_trainer else handle.input_files()
    files += checkpoint_files(tree["recipe"])
    sets = _present_sets(composed) if has_trainer else []
    world_size = int(tree["launcher"]["num_processes"])
    return make_fingerprint(
        tree,
        handle.module_path,
        files,
        world_size=world_size,
        data_sets=sets,
        imported=bound.imported,
    )


def _present_sets(composed: Composed) -> list[dict[str, Any]]:
    """The data of the Trainer as they are now: a process of its own builds it and reads them."""
    with tempfile.TemporaryDirectory(prefix="pilot_verify_") as path:
        folder = PilotFolder(Path(path))
        write_text(folder.config, yaml.safe_dump(dict(composed.tree), sort_keys=False))
        write_json(folder.start, {"module_path": str(composed.module_path)})
        log = folder.root / "survey.log"
        words = ["survey", path, "--data-only"]
        ended = run_process(words, log, Path.cwd(), timeout_secs=None, num_threads=None)
        raise_left_error(folder.root / "survey_error.json")
        if ended.code != 0:
            tail = log.read_text(encoding="utf-8", errors="replace")[-2_000:]
            raise PilotError(f"the Trainer's data could not be read:\n{tail}")
        return surveyed_sets(folder.survey)
