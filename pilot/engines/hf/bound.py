"""Whether the run that a Trainer is about to start is the one that a GO was made for."""

from __future__ import annotations

import importlib
import shlex
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from pilot.bound import BoundVerdict, loaded_file, read_bound, refuse
from pilot.engines.hf.argv import argv_of
from pilot.engines.hf.digests import digests
from pilot.engines.hf.run_facts import run_facts
from pilot.errors import ExitCode, FullRunRefused, PilotError
from pilot.fingerprint import bound_sets, make_fingerprint, without_folder
from pilot.fingerprint_differences import differences, without_own_code
from pilot.script_source import source_digest
from pilot.tracking.hide import hide_text


def require_go(trainer: Any, root: Path, allow: Collection[str]) -> None:
    """Raise in every process unless ``root`` holds a GO that was made for this Trainer's run.

    Call it at ``on_train_begin``: model, optimizer and schedule are there, nothing was trained.
    ``allow`` names parts of the fingerprint whose differences are only warned of.

    Raises:
        FullRunRefused: with everything that differs, or why there is no GO.
        FolderError: there is no verdict in ``root``.
    """
    on_first_process(trainer, lambda: _decide(trainer, root, allow))


def on_first_process(trainer: Any, act: Callable[[], None]) -> None:
    """Do ``act`` in the first process; where it raises, every process raises: none waits."""
    failed: list[tuple[str, int] | None] = [None]
    raised: Exception | None = None
    if trainer.args.process_index == 0:
        try:
            act()
        except Exception as error:
            code = int(error.exit_code) if isinstance(error, PilotError) else 1
            raised, failed = error, [(str(error), code)]
    if trainer.args.world_size > 1:
        tools: Any = importlib.import_module("accelerate.utils")
        tools.broadcast_object_list(failed, from_process=0)
    if raised is not None:
        raise raised
    if failed[0] is not None:
        message, code = failed[0]
        raise FullRunRefused(message, ExitCode(code))


def _decide(trainer: Any, root: Path, allow: Collection[str]) -> None:
    bound = read_bound(root)
    lines = [*_differences(trainer, bound), *bound.mismatch]
    taken = [line for line in lines if line.split(" ", 1)[0] in allow]
    refuse(bound, [line for line in lines if line not in taken])
    if taken:
        text = "\n".join(f"  {line}" for line in taken)
        warnings.warn(
            f"pilot: the GO in {root} was made for other {' and '.join(allow)}:\n{text}",
            stacklevel=2,
        )


def _differences(trainer: Any, bound: BoundVerdict) -> list[str]:
    made_for = bound.made_for
    facts = made_for.get("trainer")
    if not isinstance(facts, Mapping) or not facts:
        return ["trainer: the pilot trained no Trainer, so there is nothing to compare with"]
    now, lines = _fingerprint(trainer, bound)
    lines += without_own_code(differences(made_for, now))
    lines += _command_line(made_for)
    first = int((made_for.get("config") or {}).get("full_run.start_step") or 0)
    begins = int(trainer.state.global_step)
    if begins < first:
        lines.append(
            f"trainer first step: {first + 1} -> {begins + 1}: what comes before it was not piloted"
        )
    return lines


def _command_line(made_for: Mapping[str, Any]) -> list[str]:
    """Other words than the pilot gave to the script, where it gave any (``recipe.argv``)."""
    given = (made_for.get("config") or {}).get("recipe.argv")
    if given is None:
        return []
    pair = (argv_of({"argv": given}), sys.argv[1:])
    old, new = (shlex.join(str(without_folder(word)) for word in words) for words in pair)
    return [] if old == new else [f"trainer command line: {hide_text(old)} -> {hide_text(new)}"]


def _fingerprint(trainer: Any, bound: BoundVerdict) -> tuple[dict[str, Any], list[str]]:
    """The fingerprint of this process's run, and what could not be found out.

    The configuration is the pilot's own: what it says of the training was compared with the
    Trainer's arguments when the pilot began, and those are compared here.
    """
    made_for, lines = bound.made_for, []
    code = dict(made_for.get("code") or {})
    name = str(code.get("recipe_module"))
    file = loaded_file(name, bound.module_path, bound.files.get(name, ""))
    if file is None:
        lines.append(
            f"code {name}: not loaded here: build the Trainer with the file that was piloted"
        )
    made = make_fingerprint(
        {},
        file or Path(__file__),
        [],
        world_size=int(trainer.args.world_size),
        trainer=run_facts(trainer, trainer.state.max_steps),
        imported=bound.imported if file else (),
        found=_loaded_elsewhere(bound, file) if file else {},
    )
    if file is None:
        made["code"] = code
    return {**made, "config": made_for.get("config"), "data": _data(trainer, made_for)}, lines


def _loaded_elsewhere(bound: BoundVerdict, script: Path) -> dict[str, Path]:
    """The imported files that do not lie beside ``script`` and are loaded from another place."""
    found = {}
    for name in bound.imported:
        beside = (script.parent / name).resolve()
        if beside.is_file():
            continue
        digest = bound.files[name]
        path = loaded_file(Path(name).name, beside, digest)
        if path and source_digest(path) == digest:
            found[name] = path  # one that only has its name is no copy of it
    return found


def _data(trainer: Any, made_for: Mapping[str, Any]) -> Any:
    """The digests of the Trainer's data sets, as the pilot notes them.

    Files (those of a checkpoint that the pilot began from) are the pilot's own: which one a run
    resumes from, a callback is not told.
    """
    files = [item for item in made_for.get("data") or () if "rows" not in item]
    return [*files, *bound_sets(digests(trainer))]
