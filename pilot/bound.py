"""What a verdict is bound to, read from its folder; used by ``verify`` and ``PilotCallback``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilot.errors import ExitCode, FolderError, FullRunRefused
from pilot.folder import PilotFolder, read_json
from pilot.script_source import source_digest

GO, NO_GO = "GO", "NO-GO"
# Parts whose difference a user may take the responsibility for: the training can be the same.
ALLOWABLE = ("code", "packages")


@dataclass(frozen=True, kw_only=True)
class BoundVerdict:
    """A verdict and the run that it was made for.

    ``mismatch`` says that verdict and fingerprint in the folder are not of one pilot (else empty);
    ``words`` are the overrides of the command line that began the pilot; ``module_path`` is the
    file that defined what trains, where the pilot ran.
    """

    root: Path
    word: str
    why: str
    next: str
    made_for: Mapping[str, Any]
    mismatch: tuple[str, ...]
    words: tuple[str, ...]
    module_path: Path | None

    @property
    def files(self) -> dict[str, str]:
        """The digests of the files of code, the recipe's own among them."""
        found = (self.made_for.get("code") or {}).get("files")
        return dict(found) if isinstance(found, Mapping) else {}

    @property
    def imported(self) -> tuple[str, ...]:
        """The files of code beside the recipe's own, seen from its folder."""
        own = (self.made_for.get("code") or {}).get("recipe_module")
        return tuple(name for name in self.files if name != own)


def read_bound(root: Path) -> BoundVerdict:
    """The verdict in ``root``, the folder of a pilot, or of several: then the newest of them.

    Raises:
        FolderError: no such folder, no verdict in it, or a file in it is damaged.
    """
    root = newest_in(root)
    folder = PilotFolder(root)
    for needed in (folder.verdict, folder.fingerprint):
        if not needed.is_file():
            raise FolderError(
                root, f"has no verdict: {needed.name} is missing", remedy=_way(folder)
            )
    try:
        judged, made_for = read_json(folder.verdict), read_json(folder.fingerprint)
        start = read_json(folder.start) if folder.start.is_file() else {}
        carried = (judged.get("fingerprint") or {}).get("hash")
    except (OSError, ValueError, AttributeError) as error:
        what = f"a file in it is damaged: {type(error).__name__}: {error}"
        remedy = f"put it back, or judge and pilot again: python -m pilot judge {root}"
        raise FolderError(root, what, remedy=remedy) from error
    own = made_for.get("hash")
    mismatch = (
        [] if carried == own else [f"verdict.json is of {carried}, fingerprint.json of {own}"]
    )
    return BoundVerdict(
        root=root,
        word=str(judged.get("verdict")),
        why=str(judged.get("why") or ""),
        next=str(judged.get("next") or "").replace("DIR", str(root)),
        made_for=made_for,
        mismatch=tuple(mismatch),
        words=tuple(str(word) for word in start.get("words") or ()),
        module_path=Path(str(start["module_path"])) if start.get("module_path") else None,
    )


def newest_in(root: Path) -> Path:
    """The pilot in ``root`` that was judged last, where ``root`` is no pilot's folder itself."""
    folder = PilotFolder(root)
    if folder.config.exists() or folder.verdict.exists():
        return root
    judged = [path for path in root.glob("*/verdict.json") if path.is_file()]
    newest = max(judged, key=lambda path: (path.stat().st_mtime_ns, path), default=None)
    return root if newest is None else newest.parent


def refuse(bound: BoundVerdict, lines: Sequence[str]) -> None:
    """Raise ``FullRunRefused`` unless the verdict is GO and nothing (``lines``) differs."""
    if bound.word == GO and not lines:
        return
    again = f"python -m pilot {shlex.join(bound.words)}" if bound.words else "python -m pilot ..."
    text = [f"the full run is not started: the verdict in {bound.root} is {bound.word}"]
    if bound.word != GO:
        text += [f"    why:    {bound.why}"] if bound.why else []
        text += [f"    remedy: {bound.next or f'change the run and pilot it again: {again}'}"]
    if lines:
        head = f"it was made for another run; what differs (the pilot's -> now): {len(lines)}"
        text += [head, *(f"  {line}" for line in lines)]
    if bound.word == GO:
        text.append(f"    remedy: start the run that was piloted, or pilot this one: {again}")
        text.append("            (in a new folder, and name that: the callback may be changed)")
        given = {line.split(" ", 1)[0] for line in lines}
        if given <= set(ALLOWABLE):
            named = ", ".join(repr(part) for part in sorted(given))
            text.append(f"            or answer for it yourself: PilotCallback(allow=[{named}])")
    codes = {GO: ExitCode.INCONCLUSIVE, NO_GO: ExitCode.NO_GO}
    raise FullRunRefused("\n".join(text), codes.get(bound.word, ExitCode.INCONCLUSIVE))


def loaded_file(name: str, path: Path | None, sha256: str) -> Path | None:
    """The file of a module that this process has loaded: the one at ``path``, or one of its name.

    Of several with that name the one with the contents ``sha256``, if there is one. None: no such
    module is loaded (it was imported from elsewhere, or defined in a notebook).
    """
    files = []
    for module in list(sys.modules.values()):
        given = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(given, str) and Path(given).name == name and Path(given).is_file():
            files.append(Path(given).resolve())
    if path is not None and path.resolve() in files:
        return path.resolve()
    same = [file for file in files if source_digest(file) == sha256]
    return next(iter([*same, *files]), None)


def _way(folder: PilotFolder) -> str:
    if not folder.root.is_dir():
        return "give the out_dir of a pilot that has ended: python -m pilot +recipe=... out_dir=DIR"
    if folder.plan.is_file() and not folder.start.is_file():
        return "these are records of pilot.PilotCallback(out_dir=...); give the folder of a pilot"
    return f"let the pilot finish: python -m pilot resume {folder.root}"
