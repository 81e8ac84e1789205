"""Sends a finished pilot to its tracking store; can be repeated until everything has arrived.

A failure never changes the pilot's exit code: its result is complete in the folder.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilot.errors import ExitCode, FolderError
from pilot.folder import PilotFolder, read_json
from pilot.report.words import clean, human_secs
from pilot.tracking import store
from pilot.tracking.hide import hide_text
from pilot.tracking.upload import upload
from pilot.view import load


@dataclass(frozen=True, kw_only=True)
class ProjectionResult:
    """What became of it: ``off`` (no ``tracking.uri``), ``sent`` or ``failed``.

    ``lines`` say what the person has to know beside the link, which the verdict shows.
    """

    status: str
    lines: tuple[str, ...] = ()
    link: str = ""
    arms_link: str = ""
    run_id: str = ""
    secs: float = 0.0


def project(root: Path) -> ProjectionResult:
    """Send the pilot in ``root`` to ``tracking.uri`` of its configuration; never raises.

    Nothing happens when ``tracking.uri`` is null. Whatever goes wrong (server away, store damaged,
    MLflow missing, disk full) is told in ``lines``, with the command that tries again.
    """
    started = time.monotonic()
    uri = ""
    try:
        view, verdict = load(root), _read_verdict(root)
        uri = str((view.config.get("tracking") or {}).get("uri") or "")
        if not uri:
            return ProjectionResult(status="off")
        with store.quiet():
            state = upload(PilotFolder(root), view, verdict, uri)
    except Exception as error:  # a projection must never cost the verdict
        return ProjectionResult(status="failed", lines=(_failure(root, uri, error),))
    secs = time.monotonic() - started
    return ProjectionResult(
        status="sent",
        link=state.link,
        arms_link=state.arms_link,
        run_id=state.parent.run_id,
        secs=secs,
    )


def sync(root: Path) -> ExitCode:
    """``python -m pilot sync DIR``: send (again), say what happened.

    Returns ``GO`` (0) when everything arrived, ``CRASH`` (1) when not, ``USAGE`` (2) when tracking
    is off.

    Raises:
        FolderError: ``root`` is not a judged pilot.
    """
    from pilot.report.terminal import make_terminal

    load(root)
    _read_verdict(root)
    terminal, result = make_terminal(), project(root)
    if result.status == "off":
        terminal.warn(f"tracking is off: set tracking.uri in {PilotFolder(root).config}")
        return ExitCode.USAGE
    for line in result.lines:
        terminal.warn(line)
    if result.status == "failed":
        return ExitCode.CRASH
    terminal.say(f"sent in {human_secs(result.secs)}: run {result.run_id}")
    terminal.say(f"tracking: {result.link}")
    terminal.say(f"arms: {result.arms_link}")
    return ExitCode.GO


def _read_verdict(root: Path) -> dict[str, Any]:
    path = PilotFolder(root).verdict
    if not path.is_file():
        raise FolderError(
            root,
            "has no verdict yet: verdict.json is missing",
            remedy=f"python -m pilot resume {root}, or: python -m pilot judge {root}",
        )
    return read_json(path)


def _failure(root: Path, uri: str, error: Exception) -> str:
    unreached, why = store.reason(error)
    what = (
        f"tracking server {hide_text(clean(uri))} not reached: {why}"
        if unreached
        else f"tracking in {hide_text(clean(uri))} failed: {why}"
    )
    again = f"python -m pilot sync {shlex.quote(str(root))}"
    return f"{what}; the pilot's result is complete in {root}; later: {again}"
