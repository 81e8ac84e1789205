"""The contents of a Python file as far as they can change a training run.

Comments, blank lines and formatting do not count, and neither does ``pilot.PilotCallback``: the
line that binds a script to its verdict must not make it another script.
"""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

_CALLBACK = "PilotCallback"


def source_digest(path: Path) -> str:
    """The sha256 of a file's code; of its bytes where it is no Python that can be parsed.

    Raises:
        OSError: the file cannot be read.
    """
    data = path.read_bytes()
    if path.suffix == ".py":
        try:
            tree = ast.parse(data)
            tree = _WithoutPilot(_names_of(tree)).visit(tree)
            data = ast.unparse(tree).encode("utf-8", errors="surrogatepass")
        except (SyntaxError, ValueError, RecursionError):
            pass
    return hashlib.sha256(data).hexdigest()


class _WithoutPilot(ast.NodeTransformer):
    """Takes out the imports of pilot, and its callback wherever a list or a call names it.

    ``names`` are those that the callback has in the file.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def _is_callback(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = node.func.attr if isinstance(node.func, ast.Attribute) else None
        return (node.func.id if isinstance(node.func, ast.Name) else name) in self._names

    def visit_Import(self, node: ast.Import) -> ast.AST | None:  # noqa: N802 (the name is given)
        node.names = [alias for alias in node.names if not _is_pilot(alias.name)]
        return node if node.names else None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:  # noqa: N802
        return None if not node.level and _is_pilot(node.module or "") else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:  # noqa: N802
        call = node.value
        adds = (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr in ("add_callback", "append")
            and any(self._is_callback(argument) for argument in call.args)
        )
        return None if adds else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:  # noqa: N802
        self.generic_visit(node)
        return node if node.body or node.orelse else None

    def visit_List(self, node: ast.List) -> ast.AST:  # noqa: N802
        node.elts = [item for item in node.elts if not self._is_callback(item)]
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:  # noqa: N802
        if self._is_callback(node):  # kept in a variable: which folder it is given does not count
            node.args, node.keywords = [], []
            return node
        self.generic_visit(node)
        node.keywords = [word for word in node.keywords if not _is_no_callback(word)]
        return node


def _is_no_callback(word: ast.keyword) -> bool:
    """``callbacks=[]``: the same as nothing."""
    return word.arg == "callbacks" and isinstance(word.value, ast.List) and not word.value.elts


def _names_of(tree: ast.AST) -> frozenset[str]:
    """What the file calls the callback."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    aliases = [alias for node in imports if _is_pilot(node.module or "") for alias in node.names]
    return frozenset({_CALLBACK, *(a.asname or a.name for a in aliases if a.name == _CALLBACK)})


def _is_pilot(name: str) -> bool:
    return name.partition(".")[0] == "pilot"
