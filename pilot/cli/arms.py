"""Tries every arm that a configuration asks for, before anything runs.

An arm that the rule of one variable refuses, or whose configuration would be wrong, is a mistake
like any other: of the list on the command line, of ``arms.add``, or of the key that asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pilot.arms.keys import RECIPE, refusal
from pilot.arms.one_variable import change_tree
from pilot.arms.specs import (
    ABSENT,
    ADDED,
    arm_specs,
    node_at,
    same_value,
    single_change,
    value_text,
)
from pilot.cli.sweeps import Listed
from pilot.config import find_mistakes
from pilot.errors import ConfigError, Mistake
from pilot.mistakes import flat_keys, nearest

# The values that ask for no such arm.
_NONE = {"arms.learning_rate_scales": "[]", "arms.max_grad_norm": "null", "arms.num_replicas": "0"}


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The composed recipe that the arms go around.

    ``unresolved`` and ``tree`` are plain dictionaries, ``settings`` the keys that the recipe's
    module declares; ``check`` finds the mistakes of a tree, ``mistakes`` are those of ``tree``.
    """

    unresolved: Mapping[str, Any]
    tree: Mapping[str, Any]
    settings: Sequence[str]
    check: Callable[[Mapping[str, Any]], list[Mistake]]
    mistakes: Sequence[Mistake]
    has_recipe: bool


@dataclass(frozen=True, kw_only=True)
class _Wish:
    """One change that is asked for, and how a mistake about it begins."""

    key: str
    value: Any
    may_be_new: bool
    shown_key: str
    shown_value: str


def check_arms(run: Baseline, listed: Sequence[Listed]) -> tuple[list[Mistake], list[str]]:
    """The mistakes of all arms, and a note for every value that the recipe has already.

    Args:
        run: the recipe as it stands; ``arms.add`` ends with what ``listed`` holds.
        listed: the lists of the command line.
    """
    mistakes: list[Mistake] = []
    notes: list[str] = []
    refused: set[str] = set()
    for wish in _wishes(run, listed):
        if wish.key in refused:
            continue  # said once
        if refusal(wish.key):
            refused.add(wish.key)
            mistakes += _try(run, wish)
            continue
        if not run.has_recipe and wish.key.startswith(RECIPE):
            continue  # cannot be judged
        own = node_at(run.tree, wish.key)
        if own is not ABSENT and same_value(own, wish.value):
            text = value_text(wish.value)
            notes.append(f"{wish.key}={text} is what the recipe has already: no arm")
        else:
            mistakes += _try(run, wish)
    return [*mistakes, *_check_defaults(run)], notes


def _wishes(run: Baseline, listed: Sequence[Listed]) -> Iterator[_Wish]:
    words = [item for item in listed for _ in item.values]
    added = node_at(run.tree, ADDED)
    changes = added if isinstance(added, list) else []
    for number, change in enumerate(changes, start=len(words) - len(changes)):
        if not _is_single(change):
            continue  # the schema says so
        key, value = single_change(change, run.tree)
        shown_key, shown_value = ADDED, value_text([dict(change)])
        if number >= 0:  # the last ones are the lists of the command line
            shown_key, shown_value = key, str(words[number].override.input_line).partition("=")[2]
        yield _Wish(
            key=key,
            value=value,
            may_be_new=_has_plus(change),
            shown_key=shown_key,
            shown_value=shown_value,
        )


def _is_single(change: object) -> bool:
    return (
        isinstance(change, Mapping)
        and len(change) == 1
        and all(isinstance(key, str) for key in change)
    )


def _has_plus(change: Any) -> bool:
    if not isinstance(change, Mapping) or len(change) != 1:
        return False
    ((key, value),) = change.items()
    return str(key).startswith("+") or _has_plus(value)


def _try(run: Baseline, wish: _Wish) -> list[Mistake]:
    is_new = node_at(run.tree, wish.key) is ABSENT
    failed: list[Mistake] = []
    own = wish.key.startswith(f"{RECIPE}.") and not refusal(wish.key)
    if is_new and own and not (run.settings or wish.may_be_new):
        remedy = f"a key of its own is written with a plus: +{wish.key}"
        value = value_text(wish.value)
        failed = [Mistake(key=wish.key, value=value, rule="no such key", remedy=remedy)]
    else:
        try:
            changed = change_tree(run.unresolved, wish.key, wish.value, run.tree)
        except ConfigError as error:
            failed = list(error.mistakes)
        else:
            failed = [m for m in run.check(changed.tree) if m not in run.mistakes]
    near = nearest(wish.key, flat_keys(run.tree)) if is_new else ""
    hint = f"did you mean {near!r}? " if near else ""
    return [
        Mistake(
            key=wish.shown_key,
            value=wish.shown_value,
            rule=f"{m.key} = {m.value}: {m.rule}" if m.value else f"{m.key}: {m.rule}",
            remedy=m.remedy if "did you mean" in m.remedy else f"{hint}{m.remedy}",
        )
        for m in failed
    ]


def _check_defaults(run: Baseline) -> list[Mistake]:
    """The arms that conf/arms has by itself: one mistake for each key that asks for them."""
    mistakes, config = find_mistakes(run.tree)
    if config is None or mistakes or not run.has_recipe:
        return []
    found: dict[str, Mistake] = {}
    for spec in arm_specs(config):
        if spec.source == ADDED:
            continue
        wish = _Wish(
            key=spec.variable,
            value=spec.value,
            may_be_new=False,
            shown_key=spec.source,
            shown_value=spec.title,
        )
        for mistake in _try(run, wish):
            remedy = f"{mistake.remedy}; or do without: {spec.source}={_NONE[spec.source]}"
            found.setdefault(spec.source, replace(mistake, remedy=remedy))
    return list(found.values())
