"""What is wrong, and what has to be known, in the configuration of a recipe with a Trainer. Pure.

The Trainer's answers are the lowest-priority values. A value of the user's that differs replaces
the Trainer's for the pilot; one that no training argument can express is a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pilot.arms.specs import ABSENT, node_at, value_text
from pilot.cli.ask import Answer
from pilot.cli.settings import COMMON
from pilot.engines.hf.argv import argv_mistakes
from pilot.engines.hf.keys import SHAPE, WARMUP, changed_keys, is_answer
from pilot.engines.hf.named import KEY, argument_mistakes
from pilot.errors import Mistake
from pilot.mistakes import nearest

# Keys of the section `recipe` that mean something beside a Trainer.
SETTINGS = ("arguments", "argv", "resume_from")  # those that need no plus on the command line
KEYS = (*(key for key in COMMON if key != "module"), *SETTINGS)
_OPTIM = ("_target_", "learning_rate", "max_grad_norm", "weight_decay")
_OWN = ("learning_rate", "weight_decay")  # of an optimizer that the script gives: arms can
_PAIRS = {
    "full_run.schedule_steps": "full_run.epochs",
    "full_run.epochs": "full_run.schedule_steps",
    "full_run.warmup_steps": "full_run.warmup_frac",
    "full_run.warmup_frac": "full_run.warmup_steps",
}


def is_trainer(tree: Mapping[str, Any]) -> bool:
    """Whether a configuration's recipe names a callable that builds a Trainer."""
    target = node_at(tree, "recipe.trainer")
    return isinstance(target, str) and bool(target) and _engine(tree) == "transformers"


def _engine(tree: Mapping[str, Any]) -> object:
    return node_at(tree, "engine.name")


def early_mistakes(tree: Mapping[str, Any], optim_choice: str, is_chosen: bool) -> list[Mistake]:
    """What can be said before the Trainer is asked.

    Args:
        tree: the configuration without answers.
        optim_choice: the option of the group ``optim``.
        is_chosen: whether the command line chose it.
    """
    found = []
    if is_chosen or optim_choice != "adamw":
        rule = "the Trainer has its own optimizer, not one of pilot's"
        remedy = "set optim= in the script's arguments, or here optim._target_=NAME"
        found.append(Mistake(key="optim", value=optim_choice, rule=rule, remedy=remedy))
    recipe = tree.get("recipe")
    if isinstance(recipe, Mapping):
        found += argument_mistakes(recipe.get("arguments") or {}, None)
        found += argv_mistakes(recipe)
        found += [_unknown(str(key), value) for key, value in recipe.items() if key not in KEYS]
    if node_at(tree, "engine.answers") not in (None, ABSENT):
        rule, remedy = "is written by pilot: the Trainer is asked", "leave it out"
        found.append(Mistake(key="engine.answers", value="...", rule=rule, remedy=remedy))
    return found


def trainer_mistakes(tree: Mapping[str, Any], answer: Answer) -> list[Mistake]:
    """Values of a composed configuration that no argument of the Trainer can express."""
    found = [*_data_mistakes(tree), *_optim_mistakes(tree, answer), *_run_mistakes(tree, answer)]
    arguments = node_at(tree, KEY)
    found += argument_mistakes({} if arguments in (ABSENT, None) else arguments, answer.arguments)
    recipe = tree.get("recipe")
    if isinstance(recipe, Mapping):
        found += [_unknown(str(key), value) for key, value in recipe.items() if key not in KEYS]
    return found


def _unknown(key: str, value: object) -> Mistake:
    if key == "module":
        rule = "a recipe is a module of pilot's contract or a Trainer, not both"
        remedy = "drop recipe.module, or recipe.trainer"
        return Mistake(key="recipe.module", value=repr(value), rule=rule, remedy=remedy)
    near = nearest(key, KEYS)
    hint = f"did you mean 'recipe.{near}'?" if near else "the script's own settings stand in it"
    rule = "nothing reads it: recipe.trainer builds everything"
    return Mistake(key=f"recipe.{key}", value=repr(value), rule=rule, remedy=hint)


def _data_mistakes(tree: Mapping[str, Any]) -> Iterator[Mistake]:
    if node_at(tree, "pilot.data") == "representative":
        rule = "a Trainer draws its rows in its own order"
        remedy = "leave it out: pilot.data is prefix here"
        yield Mistake(key="pilot.data", value="representative", rule=rule, remedy=remedy)
    length = node_at(tree, "batch.sequence_length")
    if length not in (None, ABSENT):
        rule = "the script makes its rows as long as they are"
        remedy = "set it there; TRL: recipe.arguments.max_length=..."
        yield Mistake(key="batch.sequence_length", value=str(length), rule=rule, remedy=remedy)
    if tree.get("precision") == "fp64":
        rule, remedy = "a Trainer has no such precision", "fp32, bf16 or fp16"
        yield Mistake(key="precision", value="fp64", rule=rule, remedy=remedy)


def _optim_mistakes(tree: Mapping[str, Any], answer: Answer) -> Iterator[Mistake]:
    optim, own = tree.get("optim"), answer.tree["optim"]
    if not isinstance(optim, Mapping):
        return
    for key, value in optim.items():
        if key not in _OPTIM and key not in own:
            near = nearest(str(key), [*own])
            hint = f"did you mean 'optim.{near}'? " if near else ""
            rule = f"{own['_target_']} is given no such number by a Trainer"
            remedy = f"{hint}by its own name: {KEY}.NAME=..."
            yield Mistake(key=f"optim.{key}", value=value_text(value), rule=rule, remedy=remedy)
        elif answer.engine.get("own_optimizer") and key == "_target_" and value != own[key]:
            yield _own_made(f"optim.{key}", value, own[key], "optimizer")
    target, names = optim.get("_target_"), answer.arguments.get("optim", {}).get("choices") or []
    if target != own["_target_"] and names and target not in names:
        near = nearest(str(target), names)
        hint = f"did you mean {near!r}? " if near else ""
        yield Mistake(
            key="optim._target_",
            value=str(target),
            rule="must be an optimizer of the Trainer's, by its own name there",
            remedy=f"{hint}such as {own['_target_']}",
        )


def baseline_mistakes(tree: Mapping[str, Any], answer: Answer) -> list[Mistake]:
    """What only arms can change: numbers of an optimizer that the script makes itself."""
    if not answer.engine.get("own_optimizer"):
        return []
    pairs = [(key, node_at(tree, f"optim.{key}"), answer.tree["optim"][key]) for key in _OWN]
    return [
        _own_made(f"optim.{key}", value, own, "optimizer")
        for key, value, own in pairs
        if not is_answer(value, own)
    ]


def _own_made(key: str, value: Any, own: Any, what: str) -> Mistake:
    rule = f"the script makes its {what} itself, with {value_text(own)}"
    remedy = f"change it there, or let the script's arguments choose the {what}"
    return Mistake(key=key, value=value_text(value), rule=rule, remedy=remedy)


def _run_mistakes(tree: Mapping[str, Any], answer: Answer) -> Iterator[Mistake]:
    run = tree.get("full_run")
    if not isinstance(run, Mapping):
        return
    own = answer.tree["full_run"]["schedule"]
    if answer.engine.get("own_scheduler"):
        for key in (*WARMUP, *SHAPE):
            value, theirs = node_at(tree, key), node_at(answer.tree, key)
            if not is_answer(value, theirs):
                yield _own_made(key, value, None if theirs is ABSENT else theirs, "scheduler")
    if run.get("schedule") == "trainer" and own != "trainer":
        rule = f"is for a Trainer with a scheduler that has no formula; this one's is {own}"
        yield Mistake(key="full_run.schedule", value="trainer", rule=rule, remedy="leave it out")
    steps, warmup = answer.engine.get("steps"), run.get("warmup_steps")
    by_epochs = run.get("schedule_steps") is None and run.get("epochs") == (
        answer.tree["full_run"].get("epochs")
    )
    if by_epochs and isinstance(steps, int) and isinstance(warmup, int) and warmup > steps:
        rule = f"must be at most the {steps} steps of the Trainer's full run"
        yield Mistake(
            key="full_run.warmup_steps",
            value=str(warmup),
            rule=rule,
            remedy="shorten the warm-up, or train longer",
        )


def replaced(tree: Mapping[str, Any], answer: Answer) -> list[str]:
    """A line for every value of the user's that replaces one of the Trainer's in this pilot."""
    lines = []
    for key in changed_keys(tree):
        value, own = node_at(tree, key), node_at(answer.tree, key)
        if value in (None, ABSENT) and _PAIRS.get(key):
            continue  # its other unit is given, and has a line
        pair = _PAIRS.get(key, "")
        if own is ABSENT and pair and node_at(answer.tree, pair) is not ABSENT:
            lines.append(_line(key, value, f"{pair}={value_text(node_at(answer.tree, pair))}"))
        else:
            lines.append(_line(key, value, None if own is ABSENT else value_text(own)))
    for name, value in (node_at(tree, KEY) or {}).items():
        own = answer.arguments.get(name, {}).get("own")
        if own != value:
            lines.append(_line(f"{KEY}.{name}", value, value_text(own)))
    return lines


def _line(key: str, value: Any, own: str | None) -> str:
    shown = "" if own is None else f" {own}"
    text = value_text(value)
    return f"{key}={text} replaces the Trainer's{shown}: start the full run with it too"
