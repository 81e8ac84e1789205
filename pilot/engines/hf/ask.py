"""The process that asks a Trainer for its settings: ``python -m pilot ask DIR``.

``DIR/request.json`` says what to build; what the Trainer answers is left in ``DIR/answer.json``, so
nothing that the user's code prints can get in between. The process holds the model's memory, and
gives it back when it ends.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from pilot.engines.hf.answers import (
    objective_of,
    schedule_of,
    scheduler_name,
    settings_of,
    warmup_of,
)
from pilot.engines.hf.build import Built, build_trainer, require_transformers
from pilot.engines.hf.named import argument_table, plain
from pilot.engines.hf.rates import planned_rates
from pilot.entry import run_guarded
from pilot.errors import EXTRAS, ConfigError, MissingExtra, Mistake, PilotError, UsageError
from pilot.folder import read_json
from pilot.jsonl import write_json
from pilot.tracking.hide import hide_message, last_lines

REQUEST, ANSWER, ERROR, LOG = "request.json", "answer.json", "error.json", "ask.log"
_SHOWN_LINES = 12  # of a traceback: its end says what happened


def run_ask(root: Path) -> int:
    """Build the Trainer that ``root/request.json`` names and write its answer; the exit code."""
    return run_guarded(lambda: _ask(root), root / ERROR)


def _ask(root: Path) -> int:
    request = read_json(root / REQUEST)
    require_transformers()
    target = str(request["target"])
    with tempfile.TemporaryDirectory(prefix="pilot_trainer_") as scratch:
        try:
            built = build_trainer(
                target,
                Path.cwd(),
                Path(scratch),
                request["arguments"],
                seed=int(request["seed"]),
                argv=[str(word) for word in request.get("argv") or ()],
            )
            answer = answer_of(built, target, int(request.get("num_processes", 1)))
        except PilotError:
            raise
        except (Exception, SystemExit) as error:
            raise _failed(target, error, root / LOG) from error
    write_json(root / ANSWER, answer)
    return 0


def answer_of(built: Built, target: str, num_processes: int = 1) -> dict[str, Any]:
    """Everything that a configuration takes from a Trainer, as JSON.

    ``tree`` are values by our keys, ``engine`` is what is kept with the configuration,
    ``arguments`` is the table of the training arguments, ``notes`` are for who reads the plan.
    """
    trainer = built.trainer
    loader, max_steps, per_epoch = _run_of(trainer, target, num_processes)
    settings = settings_of(trainer, loader)
    rates = _rates(trainer, max_steps)
    warmup = warmup_of(trainer.args, max_steps)
    settings["full_run"] |= schedule_of(trainer, rates, warmup)
    per_device = max(1, int(trainer.args.per_device_train_batch_size))
    kept = {
        "kind": type(trainer).__name__,
        "steps_per_epoch": per_epoch,
        "steps": max_steps,
        "num_devices": max(1, settings["batch"]["micro_batch_size"] // per_device),
        "lr_scheduler_type": scheduler_name(trainer.args),
        "lr_scheduler_kwargs": plain(trainer.args.lr_scheduler_kwargs or {}),
        "own_optimizer": trainer.optimizer is not None,
        "own_scheduler": trainer.lr_scheduler is not None,
        **settings,
    }
    table = argument_table(type(trainer.args), trainer.args)
    for name, value in built.own.items():
        if name in table:
            table[name]["own"] = plain(value)
    return {
        "tree": {**settings, "objective": objective_of(trainer)},
        "engine": kept,
        "arguments": table,
        "notes": list(built.notes),
    }


def _rates(trainer: Any, max_steps: int) -> list[float]:
    try:
        return list(planned_rates(trainer, max_steps))
    except Exception:  # a scheduler of its own kind: it is stepped in the run, and seen there
        return []


def _run_of(trainer: Any, target: str, num_processes: int) -> tuple[Any, int, int]:
    """The training loader, the steps of the full run, and those of one epoch.

    Several processes share the batches of an epoch out; the loader here is that of one alone.

    Raises:
        ConfigError: there is nothing to train on.
    """
    if trainer.train_dataset is not None and _length(trainer.train_dataset) == 0:
        raise _no_data(target, "its Trainer's train_dataset is empty", "give it rows")
    try:
        loader = trainer.get_train_dataloader()
    except ValueError as error:
        if trainer.train_dataset is not None:
            raise
        raise _no_data(target, "its Trainer has no train_dataset", "give it one") from error
    if _length(loader) == 0:
        rule = (
            "its Trainer's loader draws no batch: fewer rows than one batch, and the last dropped"
        )
        raise _no_data(target, rule, "make the batch smaller, or keep the last one")
    values = trainer.set_initial_training_values(trainer.args, loader)
    steps, per_epoch, batches = int(values[-1]), int(values[1]), _length(loader)
    if num_processes > 1 and batches:
        share = batches // num_processes if trainer.args.dataloader_drop_last else None
        share = -(-batches // num_processes) if share is None else share
        per_epoch = max(1, -(-share // int(trainer.args.gradient_accumulation_steps)))
        if int(trainer.args.max_steps) <= 0:
            steps = math.ceil(float(trainer.args.num_train_epochs) * per_epoch)
    return loader, steps, per_epoch


def _length(rows: Any) -> int | None:
    try:
        return len(rows)
    except TypeError:
        return None


def _no_data(target: str, rule: str, remedy: str) -> ConfigError:
    return ConfigError(
        [Mistake(key="recipe.trainer", value=repr(target), rule=rule, remedy=remedy)]
    )


def _failed(target: str, error: BaseException, log: Path) -> UsageError:
    """The user's code raised: the end of its traceback, without the frames of pilot.

    Of a script that ends itself, most often over its command line, what it printed last.
    """
    package = str(getattr(error, "name", ""))  # not a part of one: that is another version
    if isinstance(error, ModuleNotFoundError) and package in EXTRAS:
        return MissingExtra(package, EXTRAS[package], f"the script {target}")
    if isinstance(error, SystemExit):
        sys.stdout.flush()
        sys.stderr.flush()
        printed = "".join(f"    | {line}\n" for line in last_lines(log))
        return UsageError(
            f"recipe.trainer = {target!r}: the script ends the process ({error.code!r}) where its "
            f"Trainer is built\n{printed}    remedy: does it read its command line? give it the "
            "words: recipe.argv='[--name, value]'"
        )
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if f"{os.sep}pilot{os.sep}engines" not in frame.filename]
    text = "".join([*traceback.format_list(own), *traceback.format_exception_only(error)])
    lines = hide_message(text).rstrip().splitlines()[-_SHOWN_LINES:]
    shown = "\n".join(f"    | {line}" for line in lines)
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return UsageError(
        f"recipe.trainer = {target!r}: the Trainer cannot be built: {hide_message(what)}\n"
        f"{shown}\n"
        "    remedy: mend the script; pilot calls it as Python would, in this directory"
    )
