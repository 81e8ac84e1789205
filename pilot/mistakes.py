"""Words for what is wrong with a configuration: the key, the value, the rule, the nearest key."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pilot.errors import Mistake


def flat_keys(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The dotted keys of all leaves, in order."""
    keys: list[str] = []
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            keys.extend(flat_keys(value, f"{prefix}{key}."))
        else:
            keys.append(f"{prefix}{key}")
    return keys


def nearest(word: str, candidates: Sequence[str]) -> str:
    """The candidate most like ``word``, or an empty string when nothing is near."""
    parent, _, last = word.rpartition(".")
    siblings = {c.rpartition(".")[2]: c for c in candidates if c.rpartition(".")[0] == parent}
    anywhere = {c.rpartition(".")[2]: c for c in candidates}
    for names, cutoff in ((siblings, 0.6), (anywhere, 0.8)):
        found = difflib.get_close_matches(last, list(names), n=1, cutoff=cutoff)
        if found:
            return names[found[0]]
    return ""


def mistake_from(item: Any, known: Sequence[str]) -> Mistake:
    """One mistake from an error of pydantic; ``known`` are the keys to suggest for a wrong one."""
    key = ".".join(str(part) for part in item["loc"])
    kind = str(item["type"])
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        near = nearest(key, [k for k in known if k != key])
        remedy = f"did you mean {near!r}?" if near else "remove it; --cfg job lists the keys"
        return Mistake(key=key, value=repr(item["input"]), rule="no such key", remedy=remedy)
    if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return Mistake(key=key, value="", rule="must be given", remedy=f"add {key}=...")
    rule = str(item["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    rule = rule.replace("should be", "must be")
    remedy = f"set {key} to a value that fits; conf/README.md explains each key"
    return Mistake(key=key, value=repr(item["input"]), rule=rule, remedy=remedy)
