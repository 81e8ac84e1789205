"""The code of a run: the recipe's file, the user's own modules that it imports, its repository.

What is installed (``site-packages``) counts by its version, not by its files.
"""

from __future__ import annotations

import hashlib
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pilot import __version__
from pilot.repository import state_of
from pilot.script_source import source_digest

MISSING = "missing"
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_OWN = Path(__file__).resolve().parent
_KINDS = (".py", ".so", ".pyd")
_GENERATED = ("torchinductor", ".triton", "torch_extensions", "torch_compile")


def imported_files(module_path: Path) -> list[str]:
    """The files of the user's own modules in this process, seen from the recipe's folder.

    Neither the recipe's own file, nor what is installed or part of Python, nor pilot itself.
    """
    folder, here = module_path.resolve().parent, module_path.resolve()
    found = set()
    for module in list(sys.modules.values()):
        given = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(given, str) or not given.endswith(_KINDS) or _is_generated(module):
            continue
        path = Path(given).resolve()
        own = path != here and path.is_file()
        if own and not _is_installed(path) and not _is_installed(Path(given)):
            found.add(Path(os.path.relpath(path, folder)).as_posix())
    return sorted(found)


def code_of(
    module_path: Path, imported: Iterable[str], found: Mapping[str, Path] | None = None
) -> tuple[dict[str, Any], str | None]:
    """What a fingerprint says of the code, and the commit it was at (which is no difference).

    Args:
        module_path: the recipe's file.
        imported: further files (``imported_files``); one that is gone counts as ``missing``.
        found: where some of them lie, if not beside the recipe's file.

    Raises:
        OSError: a file cannot be read.
    """
    folder = module_path.resolve().parent
    paths = {name: folder / name for name in imported} | dict(found or {})
    paths[module_path.name] = module_path.resolve()
    files = {n: source_digest(p) if p.is_file() else MISSING for n, p in sorted(paths.items())}
    own = {Path(os.path.normpath(path)) for path in paths.values()}
    commit, rest = state_of(module_path.resolve(), own)
    return {
        "recipe_module": module_path.name,
        "files": files,
        "repository_sha256": rest,
        "pilot_version": __version__,
        "pilot_sha256": _pilot_digest(),
    }, commit


def _is_generated(module: Any) -> bool:
    """Whether a compiler made it on its way: such files are elsewhere in the next process."""
    parts = Path(str(module.__file__)).parts
    by_name = any(mark in part for part in parts for mark in _GENERATED)
    return getattr(module, "__spec__", None) is None or by_name


def _is_installed(path: Path) -> bool:
    if _OWN in path.parents or not _INSTALLED.isdisjoint(path.parts):
        return True
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    roots = [sysconfig.get_path(name) for name in names] + [site.getusersitepackages()]
    return any(Path(root).resolve() in path.parents for root in roots if root)


def _pilot_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(_OWN.rglob("*.py")):
        if path.relative_to(_OWN).parts[0] in ("conf", "recipes"):
            continue  # only a wheel has them inside; the recipe's own file is hashed by itself
        digest.update(path.relative_to(_OWN).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()
