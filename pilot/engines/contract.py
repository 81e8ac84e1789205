"""What is wrong with what a recipe's ``build`` returned: all mistakes at once, before any step.

Only shapes and types are judged. Code that raises is an outcome of the run, with its step and rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import torch

from pilot.config import Config
from pilot.engines.complete import CompleteRecipe, is_stream
from pilot.engines.guard import ContractError
from pilot.engines.losses import StepLoss
from pilot.engines.own_optimizer import choice_mistakes
from pilot.errors import Mistake

_TRIED_ROWS = 2
_SEE = "see the contract in recipes/README.md"
# Optional methods with the number of arguments that they are called with.
_OPTIONAL: Mapping[str, int] = {
    "facts": 1,
    "num_supervised": 1,
    "losses": 2,
    "loss": 2,
    "build_optimizer": 2,
    "build_scheduler": 2,
    "mini": 0,
}


def structure_mistakes(recipe: Any, config: Config) -> list[Mistake]:
    """Members that are missing, of the wrong kind, or contradict the configuration."""
    return [
        *_methods(recipe),
        *_rows("train", getattr(recipe, "train", None)),
        *_validation(getattr(recipe, "validation", None), config),
        *_length(getattr(recipe, "train", None), config),
        *choice_mistakes(recipe, config),
    ]


def batch_mistakes(recipe: CompleteRecipe) -> list[Mistake]:
    """What ``collate``, ``num_supervised`` and, where these are wrong, the loss return.

    A loss that is wrong by itself shows in the survey's first step.
    """
    examples = list(recipe.head()[:_TRIED_ROWS]) if recipe.stream else _first(recipe.train)
    if not examples:
        return []  # a stream is empty, or raises: an outcome of the run
    batch = _tried(lambda: recipe.collate(examples))
    if batch is None:
        return []
    if mistake := _wrong_batch(batch):
        return [mistake]
    found = _contract(lambda: recipe.units(batch, len(examples)))
    if found is None:
        return []
    loss = _contract(
        lambda: StepLoss(recipe, [1]).part(recipe.build_model("full"), batch, len(examples))
    )
    return [found, loss] if loss is not None else [found]


def as_mistake(error: ContractError) -> Mistake:
    """The error as one of the configuration's mistakes."""
    key = f"recipe's {error.what}"
    return Mistake(key=key, value=error.value, rule=error.rule, remedy=error.remedy)


def _methods(recipe: Any) -> Iterator[Mistake]:
    for name in ("build_model", "collate"):
        if not callable(getattr(recipe, name, None)):
            yield _wrong(name, recipe, "build() must return an object with this method", _SEE)
    if not any(callable(getattr(recipe, name, None)) for name in ("losses", "loss")):
        rule = "build() must return an object with a loss: losses(model, batch) gives one sum per"
        yield _wrong(
            "losses", recipe, f"{rule} example, loss(model, batch) a mean or (sum, count)", _SEE
        )
    for name, count in _OPTIONAL.items():
        found = getattr(recipe, name, None)
        if found is not None and not callable(found):
            yield _wrong(name, recipe, f"must be a method with {_arguments(count)}", _SEE)
        elif found is not None and not _takes(found, count):
            rule = f"is called with {_arguments(count)}"
            yield _wrong(name, recipe, rule, f"define it with {_arguments(count)}")


def _rows(name: str, rows: Any) -> Iterator[Mistake]:
    if isinstance(rows, (str, bytes, Mapping, Set)) or rows is None:
        rule = "must be rows: a sequence, or an iterable that gives them in an order"
        yield _kind(name, rows, rule, "make it a list of examples")
    elif isinstance(rows, torch.utils.data.DataLoader):
        rule = "must be rows, not batches: pilot draws and collates them"
        yield _kind(name, rows, rule, "give its dataset")
    elif is_stream(rows):
        if not hasattr(rows, "__iter__") and not (callable(rows) and _takes(rows, 0)):
            rule = "must be a sequence of examples, an iterable, or a function that returns one"
            yield _kind(name, rows, rule, "a generator function takes no arguments")
    elif not len(rows):
        yield _kind(name, rows, "has no examples", "check where the recipe reads its data")
    elif why := _no_index(rows):
        rule = f"must give its examples by their places 0, 1, 2, ...: {why}"
        yield _kind(name, rows, rule, "make it a list of examples")


def _no_index(rows: Any) -> str:
    """Why the first row cannot be had by its place; empty when it can."""
    try:
        rows[0]
    except (KeyError, IndexError, TypeError, NotImplementedError) as error:
        return f"[0] raises {type(error).__name__}: {error}"[:200]
    except (Exception, SystemExit):  # the run will meet it again, with its step and rows
        return ""
    return ""


def _validation(found: Any, config: Config) -> Iterator[Mistake]:
    if found is None:
        return  # pilot holds rows out, or says why it cannot
    sets = found if isinstance(found, Mapping) else {"validation": found}
    for name, rows in sets.items():
        label = f"validation[{name!r}]"
        yield from _rows(label, rows)
        if config.pilot.validation_rows is None and rows is not None and is_stream(rows):
            rule = "has no length: pilot.validation_rows must say how many of its rows are used"
            yield _kind(label, rows, rule, "set pilot.validation_rows, or give a list")


def _length(train: Any, config: Config) -> Iterator[Mistake]:
    if train is not None and is_stream(train) and config.full_run.schedule_steps is None:
        rule = "the training rows have no length, so passes over them are no number of steps"
        yield Mistake(
            key="full_run.epochs",
            value=f"{config.full_run.epochs:g}",
            rule=rule,
            remedy="set full_run.schedule_steps, and full_run.epochs to null",
        )


def _wrong_batch(batch: Any) -> Mistake | None:
    rule = "must return {name: tensor}"
    if not isinstance(batch, Mapping):
        return _kind("collate", batch, rule, _SEE)
    wrong = [f"{k}: {type(v).__name__}" for k, v in batch.items() if not _is_tensor(v)]
    if wrong:
        remedy = "make tensors of these, or leave them out"
        return Mistake(key="recipe's collate", value=", ".join(wrong[:4]), rule=rule, remedy=remedy)
    return None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _first(rows: Any) -> list[Any]:
    found = _tried(lambda: [rows[i] for i in range(min(_TRIED_ROWS, len(rows)))])
    return found or []


def _tried(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (Exception, SystemExit):  # the run will meet it again, with its step and rows
        return None


def _contract(call: Callable[[], Any]) -> Mistake | None:
    try:
        call()
    except ContractError as error:
        return as_mistake(error)
    except (Exception, SystemExit):
        return None
    return None


def _takes(method: Callable[..., Any], count: int) -> bool:
    """Whether ``method`` can be called with ``count`` arguments."""
    try:
        inspect.signature(method).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # no signature: built in
        return True
    return True


def _arguments(count: int) -> str:
    return {0: "no argument", 1: "one argument"}.get(count, f"{count} arguments")


def _wrong(name: str, recipe: Any, rule: str, remedy: str) -> Mistake:
    found = getattr(recipe, name, None)
    return _kind(name, found, rule, remedy)


def _kind(name: str, value: Any, rule: str, remedy: str) -> Mistake:
    given = "missing" if value is None else f"a {type(value).__name__}"
    shown: Sequence[str] = (f"recipe's {name}", given)
    return Mistake(key=shown[0], value=shown[1], rule=rule, remedy=remedy)
