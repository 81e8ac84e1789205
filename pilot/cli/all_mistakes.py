"""Every mistake of a composed command line: its settings, its arms, and what its Trainer says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilot.cli.arms import Baseline, check_arms
from pilot.cli.ask import Answer
from pilot.cli.composition import Composition
from pilot.cli.settings import check_recipe, check_tree
from pilot.cli.sweeps import Listed
from pilot.cli.trainer import baseline_mistakes, early_mistakes, replaced, trainer_mistakes
from pilot.errors import ConfigError, Mistake


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One composition of the command line, and what is wrong with it so far."""

    made: Composition
    listed: Sequence[Listed]
    settings: Sequence[str]
    module: Path | None
    mistakes: list[Mistake]

    @property
    def tree(self) -> dict[str, Any] | None:
        """The resolved configuration, or None when there is none."""
        return self.made.tree


def refuse_early(found: Pass, optim: str, optim_is_given: bool) -> None:
    """What can be said at once is not left until a large model has been built.

    Args:
        found: a composition with a tree, of which nothing was asked yet.
        optim: the option of the group ``optim``, whoever chose it.
        optim_is_given: the command line did.

    Raises:
        ConfigError: with all mistakes.
    """
    assert found.tree is not None
    tree = found.tree
    early = early_mistakes(tree, optim, optim_is_given)
    types = check_tree(tree, None, has_recipe=False)
    recipe = tree["recipe"]
    common = check_recipe(recipe, None) if isinstance(recipe, Mapping) else []
    mistakes = _joined(_joined(found.mistakes, [*types, *common]), early)
    if mistakes:
        raise ConfigError(mistakes)


def all_mistakes(
    found: Pass, has_recipe: bool, answer: Answer | None
) -> tuple[list[Mistake], Sequence[str]]:
    """All mistakes, and the notes of a configuration without any."""
    if found.tree is None:
        return found.mistakes, ()

    def check(tree: Mapping[str, Any]) -> list[Mistake]:
        more = trainer_mistakes(tree, answer) if answer is not None else []
        first = check_tree(tree, found.module, has_recipe)
        return _joined(first, more)

    mistakes, notes = _judge(found, check, has_recipe)
    if answer is not None:
        mistakes = _joined(mistakes, baseline_mistakes(found.tree, answer))
        notes = [*answer.notes, *replaced(found.tree, answer), *notes]
    return _joined(found.mistakes, mistakes), notes


def _judge(
    found: Pass, check: Callable[[Mapping[str, Any]], list[Mistake]], has_recipe: bool
) -> tuple[list[Mistake], list[str]]:
    made = found.made
    assert made.tree is not None
    mistakes = check(made.tree)
    baseline = Baseline(
        unresolved=made.unresolved,
        tree=made.tree,
        settings=found.settings,
        check=check,
        mistakes=mistakes,
        has_recipe=has_recipe,
    )
    wrong_arms, notes = check_arms(baseline, found.listed)
    return [*mistakes, *wrong_arms], notes


def _joined(first: Sequence[Mistake], later: Sequence[Mistake]) -> list[Mistake]:
    """Both, but no later mistake about a key that is wrong already: it only follows."""
    wrong = {mistake.key for mistake in first}
    return [*first, *(mistake for mistake in later if mistake.key not in wrong)]
