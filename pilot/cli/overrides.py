"""Reads the overrides of the command line one by one, so that each mistake is found.

Hydra itself stops at the first one. What is sorted here: choices of a group (``optim=sgd``), values
(``optim.learning_rate=1.0``), lists of values (``optim.learning_rate=1.0,2.0``) and Hydra's own
settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException

from pilot.arms.keys import RECIPE
from pilot.cli.sweeps import Listed, read_list
from pilot.cli.words import MULTIRUN
from pilot.errors import Mistake
from pilot.mistakes import nearest

ARMS = "arms"
# The option of the group `arms` when values are listed.
_STAR = "arms=star"
# Settings of Hydra that pilot relies on (changing them would move or split its folder), or that its
# single run does not heed.
_FIXED = (
    *("hydra.mode", "hydra.run", "hydra.sweep", "hydra.output_subdir", "hydra.job.chdir"),
    *("hydra.sweeper", "hydra.launcher"),
)
_FIXED_GROUPS = ("hydra/launcher", "hydra/sweeper")


@dataclass(frozen=True, kw_only=True)
class Sorted:
    """The overrides that are right in form, and the mistakes of the others.

    ``choices`` maps a group to its override; ``recipe`` is the chosen recipe, if it exists;
    ``listed`` are the keys with several values.
    """

    recipe: str | None
    choices: Mapping[str, Override]
    values: tuple[Override, ...]
    listed: tuple[Listed, ...]
    hydra: tuple[Override, ...]
    mistakes: tuple[Mistake, ...]


@dataclass
class _Bins:
    choices: dict[str, Override] = field(default_factory=dict)
    values: list[Override] = field(default_factory=list)
    listed: list[Listed] = field(default_factory=list)
    num_lists: int = 0
    hydra: list[Override] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)

    def wrong(self, key: str, value: str, rule: str, remedy: str) -> None:
        self.mistakes.append(Mistake(key=key, value=value, rule=rule, remedy=remedy))


def sort_overrides(
    given: Sequence[str], groups: Mapping[str, Sequence[str]], *, multirun: bool = False
) -> Sorted:
    """Parse and sort ``given``; ``groups`` maps each group to its options.

    A missing recipe is a mistake like any other; so are lists of values without ``multirun``, and
    ``multirun`` without a list. Nothing is raised.
    """
    bins = _Bins()
    parser = OverridesParser.create()
    for text in given:
        try:
            override = parser.parse_override(text)
        except HydraException as error:
            reason = str(error).splitlines()[0]
            bins.wrong(
                text, "", f"must read KEY=VALUE: {reason}", "quote values with spaces or ,={}"
            )
            continue
        _sort_one(override, groups, bins, multirun)
    if multirun:
        _make_star(bins)
    recipe = bins.choices.get(RECIPE)
    if recipe is None and not any(m.key == RECIPE for m in bins.mistakes):
        bins.wrong(
            RECIPE, "", "a recipe must be chosen", f"add +recipe=NAME, one of: {_list(groups)}"
        )
    return Sorted(
        recipe=str(recipe.value()) if recipe else None,
        choices=bins.choices,
        values=tuple(bins.values),
        listed=tuple(bins.listed),
        hydra=tuple(bins.hydra),
        mistakes=tuple(bins.mistakes),
    )


def _make_star(bins: _Bins) -> None:
    if not bins.num_lists:
        remedy = "write KEY=VALUE,VALUE: each value is an arm; or leave it out"
        bins.wrong(MULTIRUN[0], "", "needs a list of values", remedy)
    if not any(mistake.key == ARMS for mistake in bins.mistakes):
        bins.choices.setdefault(ARMS, OverridesParser.create().parse_override(_STAR))


def _sort_one(
    override: Override, groups: Mapping[str, Sequence[str]], bins: _Bins, multirun: bool
) -> None:
    key, text = override.key_or_group, str(override.input_line)
    value = text.partition("=")[2]
    if override.is_hydra_override():
        if key in _FIXED_GROUPS or any(key == f or key.startswith(f"{f}.") for f in _FIXED):
            bins.wrong(key, value, "is set by pilot", "remove it; the folder is out_dir=DIR")
        elif override.is_sweep_override():
            bins.wrong(key, value, "must be one value", "Hydra's settings are no variables")
        else:
            bins.hydra.append(override)
    elif override.is_delete():
        rule = "cannot be removed: what then counts would be written down nowhere"
        bins.wrong(
            key,
            text,
            rule,
            f"choose another: {key}=NAME" if key in groups else f"write {key}=VALUE",
        )
    elif override.is_sweep_override():
        _sort_list(override, value, groups, bins, multirun)
    elif key in groups and not isinstance(override.value(), dict):
        _sort_choice(override, value, groups, bins)
    else:
        bins.values.append(override)


def _sort_list(
    override: Override,
    value: str,
    groups: Mapping[str, Sequence[str]],
    bins: _Bins,
    multirun: bool,
) -> None:
    key = override.key_or_group
    bins.num_lists += 1
    if key in groups:
        plus = "+" if key == RECIPE else ""
        rule = "must be one choice: a group changes several keys, an arm exactly one"
        remedy = f"run one pilot per {key} ({plus}{key}=NAME), or list values of one of its keys"
        bins.wrong(key, value, rule, remedy)
    elif not multirun:
        bins.wrong(
            key, value, "must be one value", "add -m: each value is an arm; or quote the comma"
        )
    else:
        found = read_list(override)
        if isinstance(found, Mistake):
            bins.mistakes.append(found)
        else:
            bins.listed.append(found)


def _sort_choice(
    override: Override, value: str, groups: Mapping[str, Sequence[str]], bins: _Bins
) -> None:
    group, options = override.key_or_group, groups[override.key_or_group]
    added = override.type in (OverrideType.ADD, OverrideType.FORCE_ADD)
    if override.package is not None:
        bins.wrong(f"{group}@{override.package}", value, "groups have one place", f"write {group}=")
    elif group in bins.choices:
        bins.wrong(group, value, "is chosen twice", f"keep one {group}=")
    elif value not in options:
        near = nearest(value, options)
        hint = f"did you mean {near!r}? " if near else ""
        plus = "+" if group == RECIPE else ""
        remedy = f"{hint}write {plus}{group}=NAME, one of: {', '.join(options)}"
        bins.wrong(group, value, f"no such {group}", remedy)
    elif group == RECIPE and not added:
        bins.wrong(group, value, "a recipe is added with a plus", f"write +recipe={value}")
    elif group != RECIPE and override.type is OverrideType.ADD:
        bins.wrong(group, value, "has a choice already", f"write {group}={value}, without the plus")
    else:
        bins.choices[group] = override


def _list(groups: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(groups.get(RECIPE, ())) or "(none found)"
