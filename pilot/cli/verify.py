"""``verify``: is the verdict in a folder a GO, and was it made for exactly this run?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pilot.cli.compose import compose
from pilot.errors import ExitCode, FolderError
from pilot.fingerprint import differences, make_fingerprint
from pilot.folder import PilotFolder, read_json
from pilot.recipe import RecipeHandle


def verify_run(root: Path, overrides: Sequence[str], config_dir: Path | None) -> ExitCode:
    """Compare the pilot in ``root`` with the run given by ``overrides`` and print what differs.

    Returns:
        GO only for a GO with an equal fingerprint; NO_GO for a NO-GO; else INCONCLUSIVE.

    Raises:
        FolderError: there is no verdict in ``root``.
        ConfigError: the run given is not a valid one.
    """
    folder = PilotFolder(root)
    for needed in (folder.verdict, folder.fingerprint):
        if not needed.is_file():
            raise FolderError(
                root,
                f"has no verdict: {needed.name} is missing",
                remedy=f"let the pilot finish: python -m pilot resume {root}",
            )
    judged, made_for = read_json(folder.verdict), read_json(folder.fingerprint)
    verdict = str(judged.get("verdict"))
    lines = differences(made_for, _fingerprint(overrides, config_dir))
    carried = (judged.get("fingerprint") or {}).get("hash")
    if carried != made_for.get("hash"):
        lines.append(f"verdict.json is of {carried}, fingerprint.json of {made_for.get('hash')}")
    print(f"verdict in {root}: {verdict}")
    if not lines:
        print("it was made for exactly this run")
    else:
        print(f"it was made for another run; what differs: {len(lines)}")
        print("\n".join(f"  {line}" for line in lines))
    if verdict == "NO-GO":
        return ExitCode.NO_GO
    return ExitCode.GO if verdict == "GO" and not lines else ExitCode.INCONCLUSIVE


def _fingerprint(overrides: Sequence[str], config_dir: Path | None) -> dict[str, object]:
    composed = compose(overrides, Path.cwd(), config_dir)
    tree = composed.tree
    handle = RecipeHandle(
        module_path=composed.module_path,
        settings=tree["recipe"],
        sequence_length=tree["batch"]["sequence_length"],
        seed=tree["pilot"]["seed"],
    )
    files = [] if tree["recipe"].get("trainer") else handle.input_files()
    world_size = int(tree["launcher"]["num_processes"])
    return make_fingerprint(tree, handle.module_path, files, world_size=world_size)
