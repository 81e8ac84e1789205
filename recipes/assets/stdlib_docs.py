"""Docstrings of the CPython standard library, read from source with ``ast`` (never by import)."""

from __future__ import annotations

import ast
import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MIN_ANSWER_CHARS = 20
"""Docstrings shorter than this many characters say nothing and are dropped."""

SKIPPED_DIRS = frozenset(
    {
        "__pycache__",
        "idle_test",
        "idlelib",
        "lib-dynload",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
    }
)
"""Directories that are no part of the library proper, at any depth."""

NEW_PACKAGES = frozenset({"difflib", "graphlib", "sched", "smtplib", "statistics", "uuid"})
"""Packages whose pairs are validation-only: a fine-tune never sees them, nor does the base."""

PAIR_PACKAGES = NEW_PACKAGES | frozenset(
    [
        "_pydecimal",
        "asyncio",
        "base64",
        "bisect",
        "calendar",
        "collections",
        "concurrent",
        "contextlib",
        "copy",
        "csv",
        "ctypes",
        "datetime",
        "email",
        "encodings",
        "enum",
        "fnmatch",
        "getpass",
        "glob",
        "hashlib",
        "heapq",
        "hmac",
        "html",
        "importlib",
        "ipaddress",
        "json",
        "mailbox",
        "multiprocessing",
        "netrc",
        "numbers",
        "pathlib",
        "plistlib",
        "queue",
        "random",
        "secrets",
        "selectors",
        "shelve",
        "shlex",
        "signal",
        "socket",
        "string",
        "symtable",
        "textwrap",
        "threading",
        "tkinter",
        "tomllib",
        "turtle",
        "types",
        "uu",
        "wave",
        "weakref",
        "webbrowser",
        "xml",
        "zoneinfo",
    ]
)
"""Top-level packages that give instruction pairs; every other one is for pre-training only.

Chosen by hand: a few large packages with a vocabulary of their own, which a short fine-tune can
learn, and a tail of small ones.
"""

DefNode = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Doc:
    """One docstring and where it stands."""

    package: str
    """Top-level package or module, for instance ``asyncio``."""
    module: str
    """Dotted module name, for instance ``asyncio.events``."""
    qualname: str
    """Dotted name inside the module; empty for the module itself."""
    kind: str
    """``module``, ``class``, ``function`` or ``method``."""
    signature: str
    """Source text of the arguments (functions) or of the bases (classes); may be empty."""
    text: str
    """The docstring after ``inspect.cleandoc``."""

    @property
    def name(self) -> str:
        """Full dotted name, for instance ``asyncio.events.Handle.cancel``."""
        return f"{self.module}.{self.qualname}" if self.qualname else self.module

    @property
    def answer_hash(self) -> str:
        """SHA-256 (hex) of the text with case and white space normalised."""
        return sha256_text(" ".join(self.text.split()).lower())


def sha256_text(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def stdlib_root() -> Path:
    """Folder of the running interpreter's standard library source."""
    return Path(sysconfig.get_paths()["stdlib"])


def source_files(root: Path) -> Iterator[Path]:
    """Every Python source file of the library under ``root``, in a fixed order."""
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(
            s for s in subfolders if s not in SKIPPED_DIRS and not s.startswith("config-")
        )
        for name in sorted(names):
            if name.endswith(".py") and not name.startswith("_sysconfigdata"):
                yield Path(folder, name)


def _signature(node: DefNode) -> str:
    if isinstance(node, ast.ClassDef):
        return ", ".join(ast.unparse(base) for base in node.bases)
    return ast.unparse(node.args)


def _walk(node: ast.AST, module: str, prefix: str, in_class: bool) -> Iterator[Doc]:
    package = module.partition(".")[0]
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, DefNode):
            yield from _walk(child, module, prefix, in_class)
            continue
        qualname = f"{prefix}{child.name}"
        is_class = isinstance(child, ast.ClassDef)
        kind = "class" if is_class else "method" if in_class else "function"
        text = ast.get_docstring(child, clean=True)
        if text:
            yield Doc(package, module, qualname, kind, _signature(child), text.strip())
        yield from _walk(child, module, f"{qualname}.", is_class)


def file_docs(path: Path, root: Path) -> Iterator[Doc]:
    """Every docstring of one source file: the module's first, then in source order."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    module = ".".join(parts)
    tree = ast.parse(path.read_bytes())
    text = ast.get_docstring(tree, clean=True)
    if text:
        yield Doc(parts[0], module, "", "module", "", text.strip())
    yield from _walk(tree, module, "", False)


def library_docs(root: Path) -> list[Doc]:
    """All docstrings of at least MIN_ANSWER_CHARS, each normalised text once.

    Where a text occurs in several places, the first place of a pair package wins over every
    place of a pre-training package, so that the pre-training text holds no pair's answer.
    """
    docs = [doc for path in source_files(root) for doc in file_docs(path, root)]
    docs.sort(key=lambda doc: doc.package not in PAIR_PACKAGES)  # stable: the order stays
    unique: dict[str, Doc] = {}
    for doc in docs:
        if len(doc.text) >= MIN_ANSWER_CHARS:
            unique.setdefault(doc.answer_hash, doc)
    return list(unique.values())


def topic_texts(root: Path) -> list[str]:
    """The language-reference texts that ``help()`` shows, from ``pydoc_data/topics.py``."""
    tree = ast.parse((root / "pydoc_data" / "topics.py").read_bytes())
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics: dict[str, str] = ast.literal_eval(node.value)
            return [topics[key].strip() for key in sorted(topics)]
    raise ValueError("pydoc_data/topics.py holds no dictionary of topics")
