"""Asks the user's Trainer for its settings, in a process of its own, before composing.

The answers become the lowest-priority values of the configuration: below the recipe's file and the
command line, above pilot's defaults. Hydra is given them as two nodes: the section ``optim`` as an
option of that group, everything else as a group that is added in front of the recipe.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilot.entry import raise_left_error
from pilot.errors import UsageError
from pilot.folder import read_json
from pilot.jsonl import write_json
from pilot.launchers.processes import POLL_SECS, Child, Ended, stop_signals
from pilot.tracking.hide import last_lines

GROUP, OPTION = "asked", "trainer"
# What Hydra is given in front of the recipe.
CHOICES = (f"+{GROUP}={OPTION}", f"optim={GROUP}")
_FIRST_WORD_SECS = 30.0


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked: the callable, its seed, and training arguments that the recipe sets.

    ``num_processes``: how many the full run has; one is asked. ``argv``: the script's own words.
    """

    target: str
    seed: int
    arguments: Mapping[str, Any]
    num_processes: int = 1
    timeout_secs: float | None = None
    argv: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a Trainer said: see ``pilot/engines/hf/ask.py``."""

    tree: Mapping[str, Any]
    engine: Mapping[str, Any]
    arguments: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def ask(question: Question, cwd: Path) -> Answer:
    """Build the Trainer once and return what it says.

    Raises:
        UsageError: it cannot be built: with the end of the traceback, or of what was printed.
    """
    _say(f"asking {question.target} for its settings: the Trainer is built, which may take a while")
    with tempfile.TemporaryDirectory(prefix="pilot_ask_") as folder:
        root = Path(folder)
        request = {
            "target": question.target,
            "seed": question.seed,
            "arguments": dict(question.arguments),
            "num_processes": question.num_processes,
            "argv": list(question.argv),
        }
        write_json(root / "request.json", request)
        ended = _wait(root, cwd, question.timeout_secs)
        raise_left_error(root / "error.json")
        if not (root / "answer.json").is_file():
            raise _no_answer(question, ended, root / "ask.log")
        found = read_json(root / "answer.json")
    return Answer(
        tree=found["tree"],
        engine=found["engine"],
        arguments=found["arguments"],
        notes=tuple(found["notes"]),
    )


def give_to_hydra(answer: Answer, decided: Mapping[str, Any]) -> None:
    """Store the answers where ``CHOICES`` finds them.

    Args:
        answer: what the Trainer said.
        decided: the section ``full_run`` as the user gives it, null where nothing is given: a
            length or a warm-up of the user's is not joined by the Trainer's in another unit.
    """
    from hydra.core.config_store import ConfigStore

    tree = answer.tree
    full_run = dict(tree["full_run"])
    for pair in (("schedule_steps", "epochs"), ("warmup_steps", "warmup_frac")):
        if any(decided.get(name) is not None for name in pair):
            full_run = {key: value for key, value in full_run.items() if key not in pair}
    node = {
        "recipe": {"objective": tree["objective"], "arguments": {}},
        "full_run": full_run,
        "batch": dict(tree["batch"]),
        "precision": tree["precision"],
        "pilot": {**tree["pilot"], "data": "prefix"},
        "engine": {"answers": dict(answer.engine)},
    }
    store = ConfigStore.instance()
    store.store(group=GROUP, name=OPTION, node=node, package="_global_")
    store.store(group="optim", name=GROUP, node=dict(tree["optim"]))


def _wait(root: Path, cwd: Path, timeout_secs: float | None) -> Ended | None:
    """Let the process run until it has answered or ended; None: it has answered."""
    begun, next_word = time.monotonic(), _FIRST_WORD_SECS
    with stop_signals() as check:
        child = Child(
            ["ask", str(root)],
            root / "ask.log",
            cwd,
            timeout_secs=timeout_secs,
            num_threads=None,
        )
        try:
            while not (root / "answer.json").is_file():
                ended = child.poll()
                if ended is not None:
                    return ended
                check()
                if time.monotonic() - begun > next_word:
                    _say(f"still asking after {next_word:.0f} s; Ctrl-C ends it")
                    next_word *= 2
                time.sleep(POLL_SECS)
            return None
        finally:
            child.kill()  # threads that the script left must not hold the answer up


def _no_answer(question: Question, ended: Ended | None, log: Path) -> UsageError:
    if ended is None or ended.timed_out:
        how = f"took longer than launcher.timeout_secs = {question.timeout_secs:g} s"
        remedy = "give it more time, or find out what it waits for: run the script by itself"
    elif ended.code < 0:
        how = f"was killed by signal {-ended.code}, most likely for lack of memory"
        remedy = "build the Trainer by itself on this machine; a smaller model or batch fits"
    else:
        how = f"ended with code {ended.code} and without an answer"
        remedy = "the script must return its Trainer and not end the process"
    shown = "".join(f"    | {line}\n" for line in last_lines(log))
    return UsageError(
        f"recipe.trainer = {question.target!r}: the process that builds it {how}\n"
        f"{shown}    remedy: {remedy}"
    )


def _say(text: str) -> None:
    print(f"pilot: {text}", file=sys.stderr, flush=True)
