"""The state of the repository that holds a recipe: its commit, and a hash of its tracked files.

The hash is of the tracked files as they lie in the working tree, so committing a change of one does
not alter it; adding a file to the repository does.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Collection
from pathlib import Path

_GIT_SECS = 60.0
_PROSE = (".md", ".rst", ".ipynb", ".gitignore")  # no training run reads them


def state_of(file: Path, without: Collection[Path]) -> tuple[str | None, str | None]:
    """Commit, and hash of the tracked files, of the repository that holds ``file``.

    Args:
        file: a file; where git ignores it (a virtual environment inside a checkout), the
            repository is not its own.
        without: resolved paths of files that are left out, because they are hashed elsewhere.

    Returns:
        None for what is not known: no repository, no commit, or no git.
    """
    folder = file.parent
    if _git(folder, "check-ignore", "-q", str(file)) is not None:
        return None, None
    commit, top = _git(folder, "rev-parse", "--verify", "HEAD"), _git(folder, *_TOP)
    if commit is None or top is None:
        return None, None
    return commit.decode().strip(), _hash_of(Path(os.fsdecode(top).rstrip("\n")), without)


_TOP = ("rev-parse", "--show-toplevel")


def _hash_of(top: Path, without: Collection[Path]) -> str | None:
    listed = _git(top, "ls-files", "-s", "-z")
    changed = _git(top, "diff", "--name-only", "-z", "--ignore-submodules=dirty")
    if listed is None or changed is None:
        return None
    kept = {}
    for entry in filter(None, listed.split(b"\0")):
        facts, _, name = entry.partition(b"\t")
        path = top / name.decode(errors="surrogateescape")
        if path.suffix not in _PROSE and path.name not in _PROSE and path not in without:
            kept[name] = facts
    for name in set(changed.split(b"\0")) & set(kept):
        kept[name] = _present(top, name)
    lines = sorted(name + b"\0" + facts for name, facts in kept.items())
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


def _present(top: Path, name: bytes) -> bytes:
    """A changed file as git would list it: mode and the hash that a commit would give it."""
    path = top / name.decode(errors="surrogateescape")
    if path.is_symlink() or not path.exists():
        return b"link " + str(path.readlink()).encode() if path.is_symlink() else b"deleted"
    if path.is_dir():  # a submodule at another commit
        commit = _git(path, "rev-parse", "HEAD")
        return b"160000 " + (commit or b"unknown").strip() + b" 0"
    mode = b"100755" if path.stat().st_mode & 0o100 else b"100644"
    found = _git(top, "hash-object", "--", name.decode(errors="surrogateescape"))
    return mode + b" " + (found or b"unreadable").strip() + b" 0"


def _git(folder: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
