"""Interpolations in a configuration that is not resolved: what a leaf is made from. Pure text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

_OPEN = r"(?<!\\)(?:\\\\)*\$\{\s*"  # not escaped
_REFERENCE = re.compile(_OPEN + r"([^{}:$]+?)\s*\}")
_RESOLVER = re.compile(_OPEN + r"([\w.]+)\s*:")
_HYDRAS = ("now", "hydra", "python_version")
# Resolvers whose result does not come from the configuration.
_OUTSIDE = (*_HYDRAS, "oc.env", "oc.decode")


@dataclass(frozen=True, kw_only=True)
class Link:
    """An interpolation: its text, and the keys of the configuration that it names."""

    text: str
    sources: tuple[str, ...]


def find_link(tree: Mapping[str, Any], key: str) -> Link | None:
    """How the leaf ``key`` is made from other keys; None when it has a value of its own.

    A value from outside (the time, the environment) is one of its own. A key inside an interpolated
    section is made from the same key of the other section.
    """
    node: Any = tree
    parts = key.split(".")
    for depth, part in enumerate(parts):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
        if isinstance(node, str):
            link = _link(node, parts[: depth + 1])
            rest = parts[depth + 1 :]
            if link is None or not rest:
                return link
            sources = tuple(".".join([source, *rest]) for source in link.sources)
            return Link(text=link.text, sources=sources)
    found = [link for path, text in _texts(node, parts) if (link := _link(text, path))]
    if not found or isinstance(node, Mapping):
        return None
    sources = tuple(dict.fromkeys(source for link in found for source in link.sources))
    return Link(text=found[0].text, sources=sources)


def is_outside(text: str) -> bool:
    """Whether ``text`` is made by resolvers alone, from outside the configuration."""
    names = _RESOLVER.findall(text)
    unknown = [name for name in names if not OmegaConf.has_resolver(name)]
    return bool(names) and not _REFERENCE.search(text) and set(names) <= {*_OUTSIDE, *unknown}


def use_hydras_resolvers() -> None:
    """Make ``${now:}`` resolvable outside of Hydra's app as well."""
    if not OmegaConf.has_resolver("now"):
        from hydra.core.utils import setup_globals

        setup_globals()


def _link(text: str, path: Sequence[str]) -> Link | None:
    sources = [_absolute(match, path) for match in _REFERENCE.findall(text)]
    inside = [name for name in _RESOLVER.findall(text) if name not in _OUTSIDE]
    if not sources and not inside:
        return None
    return Link(text=text, sources=tuple(dict.fromkeys(sources)))


def _absolute(reference: str, path: Sequence[str]) -> str:
    """``..beta1`` seen from ``optim.betas.0`` is ``optim.beta1``: a dot is the leaf's container."""
    name = reference.lstrip(".")
    num_dots = len(reference) - len(name)
    name = re.sub(r"\[([^\]]*)\]", r".\1", name).lstrip(".")
    above = path[: len(path) - num_dots] if num_dots else ()
    return ".".join([*above, name])


def _texts(node: Any, path: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    if isinstance(node, str):
        yield list(path), node
    elif isinstance(node, Mapping):
        for name, item in node.items():
            yield from _texts(item, [*path, str(name)])
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _texts(item, [*path, str(index)])
