"""Whether each overridden key exists, and how Hydra must be told where it may be new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Override, OverrideType

from pilot.arms.keys import OPEN_SECTIONS, RECIPE
from pilot.errors import Mistake
from pilot.mistakes import flat_keys, nearest

# A dictionary of the user's own keys; no plus needed.
_FREE = "gates.waive"
_ABSENT = object()


def check_keys(
    values: Sequence[Override], tree: Any, settings: Sequence[str], has_recipe: bool
) -> tuple[list[Override], list[Mistake]]:
    """The overrides whose key is right, and the mistakes of the others.

    Args:
        values: the value overrides.
        tree: the configuration composed from the choices alone, unresolved.
        settings: keys of the recipe section that the recipe's module declares.
        has_recipe: without a recipe, keys under ``recipe`` cannot be judged and are passed over.
    """
    known = [*flat_keys(tree), *(f"recipe.{name}" for name in settings)]
    good, mistakes = [], []
    for override in values:
        key = override.key_or_group
        if not has_recipe and key.split(".")[0] == RECIPE:
            continue
        mistake = _wrong_key(override, tree, known, settings)
        if mistake is None:
            good.append(override)
        else:
            mistakes.append(mistake)
    return good, mistakes


def for_hydra(values: Sequence[Override], tree: Any) -> list[str]:
    """The override texts for Hydra: a new key that may be given needs two plus signs there."""
    texts = []
    for override in values:
        text = str(override.input_line)
        new = override.type is OverrideType.CHANGE and not _exists(tree, override.key_or_group)
        texts.append(f"++{text}" if new else text)
    return texts


def _wrong_key(
    override: Override, tree: Any, known: Sequence[str], settings: Sequence[str]
) -> Mistake | None:
    key, value = override.key_or_group, str(override.input_line).partition("=")[2]
    section, _, rest = key.partition(".")
    exists = _exists(tree, key)
    added = override.type is OverrideType.ADD
    if exists and added:
        remedy = f"write {key}={value}, without the plus"
        return Mistake(key=key, value=value, rule="exists already", remedy=remedy)
    if isinstance(_node(tree, key), list) and isinstance(override.value(), dict):
        remedy = f"write {key}=[{value}]"
        return Mistake(key=key, value=value, rule="must be a list", remedy=remedy)
    if exists or _is_free(key) or (section == RECIPE and rest.split(".")[0] in settings):
        return None
    may_add = section in OPEN_SECTIONS and bool(rest) and _parent_is_section(tree, key)
    if may_add and override.type is not OverrideType.CHANGE:
        return None
    near = nearest(key, known)
    hints = [f"did you mean {near!r}?"] if near else []
    if may_add:
        hints.append(f"a key of its own is added with a plus: +{key}={value}")
    elif not near:
        hints.append("--cfg job lists the keys")
    return Mistake(key=key, value=value, rule="no such key", remedy=" ".join(hints))


def _is_free(key: str) -> bool:
    return key.startswith(f"{_FREE}.") and key.count(".") == _FREE.count(".") + 1


def _parent_is_section(tree: Any, key: str) -> bool:
    return isinstance(_node(tree, key.rpartition(".")[0]), Mapping)


def _exists(tree: Any, key: str) -> bool:
    return _node(tree, key) is not _ABSENT


def _node(tree: Any, key: str) -> Any:
    node = tree
    for part in key.split("."):
        if isinstance(node, Mapping) and part in node:
            node = node[part]
        elif isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        else:
            return _ABSENT
    return node
