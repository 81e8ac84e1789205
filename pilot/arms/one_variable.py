"""The one-variable rule: an arm is the recipe with exactly one leaf of its configuration changed.

The proof is made on the configuration *before* its interpolations are resolved, leaf by leaf; what
then differs in the resolved one follows that leaf, and is listed.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pilot.arms.keys import OPEN_SECTIONS, must_not_follow, refusal, remedy
from pilot.arms.links import Link, find_link, is_outside, use_hydras_resolvers
from pilot.arms.specs import ABSENT, node_at, same_value, value_text
from pilot.errors import ConfigError, Mistake
from pilot.mistakes import flat_keys, nearest

_MAX_SHOWN = 8  # keys named in a remedy


@dataclass(frozen=True, kw_only=True)
class Changed:
    """An arm's resolved configuration.

    ``follows`` maps every other leaf that differs from the baseline's to its value as YAML text;
    ``baseline_value`` is what the changed leaf is there (None as well where it is absent).
    """

    tree: dict[str, Any]
    follows: dict[str, str]
    baseline_value: Any


def change_leaf(
    unresolved_yaml: str, key: str, value: Any, *, resolved: Mapping[str, Any] | None = None
) -> Changed:
    """Set the leaf ``key`` of a composed configuration, given as YAML text, to ``value``.

    Args:
        unresolved_yaml: the configuration with its interpolations.
        key: the dotted key of a leaf; a list or mapping that is replaced whole is one leaf. Under
            ``optim`` and ``recipe`` it may be new: the command line has checked such keys.
        value: a plain value, taken as it is (no interpolation in it is resolved).
        resolved: the baseline's resolved configuration. What comes from outside (the time, the
            environment) is taken from there, so that it is the baseline's later on as well.

    Raises:
        ConfigError: no such leaf, a section, a leaf that follows another one, a key that all arms
            share, the value that it has already, or nothing that can be resolved.
    """
    plain = OmegaConf.to_container(OmegaConf.create(unresolved_yaml), resolve=False)
    assert isinstance(plain, dict)
    return change_tree({str(name): node for name, node in plain.items()}, key, value, resolved)


def change_tree(
    unresolved: Mapping[str, Any],
    key: str,
    value: Any,
    resolved: Mapping[str, Any] | None = None,
) -> Changed:
    """The same as ``change_leaf`` for a configuration that has been read: plain containers."""
    _refuse_key(unresolved, key, value)
    one_changed = _with(unresolved, key, _literal(value))
    if _differing(unresolved, one_changed, key) != [key]:
        rule = "is the recipe's own value already: no arm"
        raise _mistake(key, value, rule, "leave it out, or give another value")
    pinned = _pinned(unresolved, resolved) if resolved is not None else unresolved
    before, after = _resolve(pinned, _with(pinned, key, _literal(value)), key, value)
    differing = _differing(before, after, key)
    follows = [name for name in differing if name != key]
    for name in filter(must_not_follow, follows):
        rule = f"{name} follows it by interpolation, and {refusal(name)}"
        raise _mistake(key, value, rule, f"give {name} a value of its own")
    baseline = resolved if resolved is not None else before
    own = node_at(baseline, key)
    return Changed(
        tree=_overlaid(baseline, after, {**dict.fromkeys(follows, ABSENT), key: value}),
        follows={name: _text_at(after, name) for name in follows},
        baseline_value=None if own is ABSENT else own,
    )


def _refuse_key(tree: Mapping[str, Any], key: str, value: Any) -> None:
    rule = refusal(key)
    if rule:
        raise _mistake(key, value, rule, remedy(key))
    link = find_link(tree, key)
    if link is not None:
        raise _linked(key, value, link)
    node = node_at(tree, key)
    if node is ABSENT:
        _refuse_absent(tree, key, value)
    elif isinstance(node, Mapping) and node and (isinstance(value, Mapping) or "." not in key):
        leaves = flat_keys(node, f"{key}.")
        free = [leaf for leaf in leaves if not refusal(leaf) and find_link(tree, leaf) is None]
        rule = f"is a section of {len(leaves)} keys: an arm changes exactly one"
        shown = ", ".join(free[:_MAX_SHOWN]) + (", ..." if len(free) > _MAX_SHOWN else "")
        raise _mistake(key, value, rule, f"name one: {shown}")


def _refuse_absent(tree: Mapping[str, Any], key: str, value: Any) -> None:
    parent = key.rpartition(".")[0]
    above = node_at(tree, parent) if parent else ABSENT
    if isinstance(above, list):
        raise _mistake(key, value, "is one element of a list", f"give the whole list {parent}")
    if isinstance(above, Mapping) and key.partition(".")[0] in OPEN_SECTIONS:
        return
    near = nearest(key, flat_keys(tree))
    hint = f"did you mean {near!r}?" if near else "--cfg job lists the keys"
    raise _mistake(key, value, "no such key", hint)


def _linked(key: str, value: Any, link: Link) -> ConfigError:
    if not link.sources:
        rule = f"is made by {link.text}: changing it would hide the link"
        return _mistake(key, value, rule, "change the key that it is made from")
    sources = ", ".join(link.sources)
    rule = f"follows {sources} by interpolation: changing it would hide the link"
    many = " (one of them)" if len(link.sources) > 1 else ""
    return _mistake(key, value, rule, f"change {sources}{many} instead; {key} follows")


def _with(tree: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    changed: dict[str, Any] = copy.deepcopy(dict(tree))
    node = changed
    *parents, leaf = key.split(".")
    for parent in parents:
        node = node[parent]
    node[leaf] = value
    return changed


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], key: str) -> list[str]:
    """The leaves that differ, in order; those inside ``key``, replaced whole, count as it."""
    names = dict.fromkeys([*flat_keys(one), *flat_keys(other)])
    pairs = ((name, node_at(one, name), node_at(other, name)) for name in names)
    # An empty section that has keys now is named by those keys.
    leaves = (p for p in pairs if not (isinstance(p[1], Mapping) and isinstance(p[2], Mapping)))
    found = (name for name, before, after in leaves if not same_value(before, after))
    whole = (key if name.startswith(f"{key}.") else name for name in found)
    return list(dict.fromkeys(whole))


def _pinned(unresolved: Mapping[str, Any], resolved: Mapping[str, Any]) -> dict[str, Any]:
    """``unresolved`` with everything that comes from outside it as it was for ``resolved``."""

    def pin(node: Any, known: Any) -> Any:
        if isinstance(node, Mapping) and isinstance(known, Mapping):
            return {name: pin(item, known.get(name, ABSENT)) for name, item in node.items()}
        if isinstance(node, list) and isinstance(known, list) and len(node) == len(known):
            return [pin(item, value) for item, value in zip(node, known, strict=True)]
        if known is not ABSENT and isinstance(node, str) and is_outside(node):
            return _literal(known)
        return node

    return {name: pin(item, resolved.get(name, ABSENT)) for name, item in unresolved.items()}


def _resolve(
    one: Mapping[str, Any], other: Mapping[str, Any], key: str, value: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    before, after = OmegaConf.create(dict(one)), OmegaConf.create(dict(other))
    use_hydras_resolvers()
    try:
        plain_before: Any = OmegaConf.to_container(before, resolve=True)
        OmegaConf.copy_cache(before, after)  # the same moment for both
        plain_after: Any = OmegaConf.to_container(after, resolve=True)
    except OmegaConfBaseException as error:
        rule = f"the configuration must resolve with it: {str(error).splitlines()[0]}"
        raise _mistake(key, value, rule, "name keys that exist") from error
    return plain_before, plain_after


def _overlaid(
    baseline: Mapping[str, Any], after: Mapping[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """``baseline`` with the leaves in ``changes``: their value, or (absent) what ``after`` has."""
    tree: dict[str, Any] = copy.deepcopy(dict(baseline))
    wanted = {
        key: node_at(after, key) if value is ABSENT else copy.deepcopy(value)
        for key, value in changes.items()
    }
    for key in (key for key, value in wanted.items() if value is ABSENT):
        parent = node_at(tree, key.rpartition(".")[0])
        if isinstance(parent, dict):
            parent.pop(key.rpartition(".")[2], None)
    for key, value in wanted.items():
        if value is not ABSENT:
            tree = _with(tree, key, value)
    return tree


def _text_at(tree: Mapping[str, Any], key: str) -> str:
    node = node_at(tree, key)
    return "absent" if node is ABSENT else value_text(node)


def _literal(value: Any) -> Any:
    """``value`` with its ``${`` escaped: text that an arm is given is no interpolation."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    if isinstance(value, Mapping):
        return {name: _literal(item) for name, item in value.items()}
    return [_literal(item) for item in value] if isinstance(value, (list, tuple)) else value


def _mistake(key: str, value: Any, rule: str, remedy: str) -> ConfigError:
    mistake = Mistake(key=key, value=value_text(value), rule=rule, remedy=remedy)
    return ConfigError([mistake])
