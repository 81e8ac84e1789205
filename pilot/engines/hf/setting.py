"""Sets training arguments over the user's, wherever the user's code makes or changes them.

``TrainingArguments`` are made inside the user's code, so they are changed there: when an instance
is made (a subclass of a Trainer may read them before the Trainer itself does), when a Trainer is
given one, and when it is ready. The user's values are kept, to be compared and shown.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pilot.engines.hf import sharded
from pilot.engines.hf.named import KEY, argument_mistakes, argument_table, plain, wrong_value
from pilot.errors import ConfigError, Mistake

# Set before the arguments check each other, and after: these decide nothing about the mathematics.
QUIET: Mapping[str, Any] = {
    "save_strategy": "no",
    "eval_strategy": "no",
    "load_best_model_at_end": False,
    "push_to_hub": False,
    "report_to": [],
    "disable_tqdm": True,
    "eval_on_start": False,
    "ignore_data_skip": False,
    "restore_callback_states_from_checkpoint": False,
    "auto_find_batch_size": False,
}


class Setting:
    """What is set over the user's arguments.

    Args:
        scratch: the output folder that a Trainer gets instead of the user's.
        changes: training arguments by their own name.
    """

    def __init__(self, scratch: Path, changes: Mapping[str, Any]) -> None:
        self._wanted = {"output_dir": str(scratch), **changes}
        self.own: dict[str, Any] = {}

    def set_over(self, args: Any) -> None:
        """The changes, before the arguments check each other.

        Raises:
            ConfigError: a value is of the wrong type for its argument.
        """
        self._refuse_types(args)
        sharded.refuse(sharded.of_arguments(args))
        for name, value in self._values(args, self._wanted).items():
            self._set(args, name, value)
        if "seed" in self._wanted and getattr(args, "data_seed", None) is None:
            args.data_seed = self.own["seed"]  # the order of the rows stays the user's

    def quieten(self, args: Any) -> None:
        """Without savings, evaluations, trackers and searches of its own."""
        for name, value in self._values(args, QUIET).items():
            self._set(args, name, value)

    def finish(self, trainer: Any) -> None:
        """What the user's code did to the arguments after they were made is set over again.

        Raises:
            ConfigError: the Trainer's arguments have no such name.
        """
        args, table = trainer.args, argument_table(type(trainer.args))
        unknown = {n: v for n, v in self._changes(args).items() if n not in table}
        if unknown:
            raise ConfigError(_unknown(unknown, table))
        self.set_over(args)
        self.quieten(args)
        if "per_device_train_batch_size" in self._wanted:
            trainer._train_batch_size = args.train_batch_size

    def _set(self, args: Any, name: str, value: Any) -> None:
        before = getattr(args, name)
        if plain(before) != plain(value):  # a copy of changed arguments is not the user's
            self.own[name] = before
        self.own.setdefault(name, before)
        setattr(args, name, value)

    def _changes(self, args: Any) -> dict[str, Any]:
        """The changes under the names that this version has."""
        found = {name: value for name, value in self._wanted.items() if name != "output_dir"}
        if "warmup_ratio" in found and not hasattr(args, "warmup_ratio"):
            found["warmup_steps"] = found.pop("warmup_ratio")
        elif "warmup_ratio" in found:
            found["warmup_steps"] = 0
        return found

    def _values(self, args: Any, values: Mapping[str, Any]) -> dict[str, Any]:
        """Those of ``values`` that these arguments have; enumerations in their own type."""
        if values is self._wanted:
            values = {"output_dir": self._wanted["output_dir"], **self._changes(args)}
        found = {}
        for name, value in values.items():
            if hasattr(args, name):
                current = getattr(args, name)
                is_enum = isinstance(value, str) and hasattr(type(current), "__members__")
                found[name] = type(current)(value) if is_enum else value
        return found

    def _refuse_types(self, args: Any) -> None:
        table = argument_table(type(args))
        found = []
        for name, value in self._changes(args).items():
            rule = wrong_value(value, table[name]) if name in table else ""
            if rule:
                remedy = "give a value of that kind"
                key = f"{KEY}.{name}"
                found.append(Mistake(key=key, value=repr(value), rule=rule, remedy=remedy))
        if found:
            raise ConfigError(found)


@contextlib.contextmanager
def set_over(setting: Setting) -> Iterator[None]:
    """While it is open, every ``TrainingArguments`` and every Trainer that is made is changed.

    ``train`` is refused meanwhile: pilot trains what the user's code builds.
    """
    from transformers import Trainer, TrainingArguments

    made, built, train = TrainingArguments.__post_init__, Trainer.__init__, Trainer.train

    @functools.wraps(made)
    def post_init(self: Any) -> None:
        setting.set_over(self)
        made(self)
        setting.quieten(self)

    @functools.wraps(built)
    def init(self: Any, model: Any = None, args: Any = None, *rest: Any, **more: Any) -> None:
        if isinstance(args, TrainingArguments):
            setting.set_over(args)
            setting.quieten(args)
        built(self, model, args, *rest, **more)

    @functools.wraps(train)
    def refuse(self: Any, *rest: Any, **more: Any) -> None:
        raise trained()

    TrainingArguments.__post_init__, Trainer.__init__, Trainer.train = post_init, init, refuse
    try:
        yield
    finally:
        TrainingArguments.__post_init__, Trainer.__init__, Trainer.train = made, built, train


def trained() -> ConfigError:
    """The user's code has trained, or tries to."""
    mistake = Mistake(
        key="recipe.trainer",
        value="",
        rule="must return a Trainer that has not been trained; the script calls train()",
        remedy='return it untrained; train() belongs under `if __name__ == "__main__":`',
    )
    return ConfigError([mistake])


def _unknown(values: Mapping[str, Any], table: Mapping[str, Any]) -> list[Mistake]:
    found = argument_mistakes(values, table)
    return found or [
        Mistake(key=f"{KEY}.{name}", value=repr(value), rule="is unknown here", remedy="drop it")
        for name, value in values.items()
    ]
