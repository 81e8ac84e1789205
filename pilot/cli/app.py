"""The Hydra app: a recipe on the command line becomes a campaign in a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pilot.cli.words import MULTIRUN
from pilot.config import conf_dir
from pilot.errors import ExitCode, UsageError
from pilot.mistakes import nearest

# Flags that only show something: Hydra does that as it is.
_HANDED = ("--cfg", "-c", "--info", "-i", "--hydra-help", "--shell-completion", "-sc")
_KNOWN = (*_HANDED, *MULTIRUN, "--config-dir", "--help", "--version")
INTERRUPTED = 130  # what a shell shows after Ctrl-C: 128 + SIGINT


def run(given: Sequence[str]) -> int:
    """Pilot the recipe ``given`` on the command line; returns the exit code.

    Raises:
        UsageError: a flag, the configuration or the folder is wrong.
    """
    config_dir, words = _take_config_dir(list(given))
    multirun = any(word in MULTIRUN for word in words)
    words = [word for word in words if word not in MULTIRUN]
    flags = [word for word in words if word.startswith("-")]
    if any(flag.split("=")[0] in _HANDED for flag in flags):
        return _hand_over(words, config_dir, multirun)
    for flag in flags:
        _refuse(flag)
    return _pilot(words, config_dir, multirun)


def _take_config_dir(words: list[str]) -> tuple[Path | None, list[str]]:
    found, rest = None, []
    while words:
        word = words.pop(0)
        flag, equals, value = word.partition("=")
        if flag not in ("--config-dir", "-cd"):
            rest.append(word)
        elif equals:
            found = Path(value)
        elif words:
            found = Path(words.pop(0))
        else:
            raise UsageError(f"{word} needs a folder\n    remedy: {word} DIR")
    return found, rest


def _refuse(flag: str) -> None:
    near = nearest(flag, _KNOWN)
    hint = f"did you mean {near}?" if near else "python -m pilot --help lists the flags"
    raise UsageError(f"{flag}: no such flag\n    remedy: {hint}")


def _pilot(words: Sequence[str], config_dir: Path | None, multirun: bool) -> int:
    from pilot.cli.compose import compose
    from pilot.cli.outdir import claim
    from pilot.cli.sweeps import quoted
    from pilot.engines.world import refuse_many
    from pilot.launchers.processes import Terminated

    refuse_many(os.environ)
    start = Path.cwd()
    composed = compose(words, start, config_dir, multirun=multirun)
    root = start / str(composed.tree["out_dir"])
    claim(root)
    # The folder is pinned: a name with the time in it must not be made a second time.
    kept = [text for text in composed.overrides if not text.lstrip("+").startswith("out_dir=")]
    overrides = [*kept, f"out_dir={quoted(str(root))}"]
    results: list[int | BaseException] = []

    def task(cfg: Any) -> None:
        try:
            results.append(_campaign(cfg, root, composed.notes, composed.words))
        except Exception as error:  # Hydra would show it as a failed job, with its own exit code
            results.append(error)

    try:
        _hydra(task, overrides)
    except Terminated:
        print(f"pilot: terminated; go on: python -m pilot resume {root}", file=sys.stderr)
        raise
    except KeyboardInterrupt:
        print(f"pilot: interrupted; go on: python -m pilot resume {root}", file=sys.stderr)
        return INTERRUPTED
    result = results[0]
    if isinstance(result, BaseException):
        raise result
    return result


def _campaign(cfg: Any, root: Path, notes: tuple[str, ...], words: Sequence[str]) -> int:
    from omegaconf import OmegaConf

    from pilot import campaign

    tree: Any = OmegaConf.to_container(cfg, resolve=True)
    given = [word for word in words if not word.lstrip("+").startswith("out_dir=")]
    return int(campaign.start(tree, OmegaConf.to_yaml(cfg), root, notes, words=given))


def _hand_over(words: list[str], config_dir: Path | None, multirun: bool) -> int:
    from pilot.cli.search import use_user_dirs

    use_user_dirs(Path.cwd(), config_dir)
    given = [word for word in words if "=" in word and not word.startswith("-")]
    if multirun or _shows_trainer(words, given, config_dir):
        # What is shown is what would run: the lists as arms, a Trainer with its own settings.
        from pilot.cli.compose import compose

        composed = compose(given, Path.cwd(), config_dir, multirun=multirun)
        words = [*(word for word in words if word not in given), *composed.overrides]
    try:
        _hydra(lambda cfg: None, words)
    except SystemExit as stop:  # nothing runs here: whatever Hydra complains of is the command line
        return int(ExitCode.USAGE if stop.code else ExitCode.GO)
    return ExitCode.GO


def _shows_trainer(words: Sequence[str], given: Sequence[str], config_dir: Path | None) -> bool:
    """Whether the configuration of a recipe with a Trainer is to be printed."""
    prints = any(word.split("=")[0] in ("--cfg", "-c") for word in words)
    if not prints or "hydra" in words or "--cfg=hydra" in words:
        return False
    from pilot.cli.compose import names_trainer

    return names_trainer(given, Path.cwd(), config_dir)


def _hydra(task: Callable[[Any], None], words: Sequence[str]) -> None:
    import hydra

    from pilot.cli.search import VERSION_BASE

    app = hydra.main(version_base=VERSION_BASE, config_path=str(conf_dir()), config_name="config")
    before = sys.argv
    sys.argv = ["pilot", *words]
    try:
        app(task)()
    finally:
        sys.argv = before
