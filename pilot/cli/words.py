"""The words of the command line: what is done with the folder of a pilot that exists.

Each word parses its own arguments and calls one function elsewhere; imports are lazy, so that a
word only loads what it needs (``judge`` runs without torch).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MULTIRUN = ("-m", "--multirun")  # the flags with which a list of values is a list of arms


@dataclass(frozen=True, kw_only=True)
class Word:
    """A word: one line for the help, and what runs it (arguments in, exit code out)."""

    summary: str
    run: Callable[[list[str]], int]
    internal: bool = False


def _folder_parser(word: str, about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"pilot {word}", description=about, allow_abbrev=False)
    parser.add_argument("dir", type=Path, metavar="DIR", help="the folder of a pilot")
    return parser


def judge(arguments: list[str]) -> int:
    """Judge a finished pilot again from its records; the exit code is the verdict's."""
    parser = _folder_parser("judge", "Judge a pilot again from its records, without a model.")
    parser.add_argument("--gates", type=Path, metavar="FILE", help="gates to judge by")
    args = parser.parse_args(arguments)

    from pilot import judge as judging
    from pilot.folder import PilotFolder, read_json
    from pilot.report.terminal import make_terminal
    from pilot.view import load

    view = load(args.dir)
    judgement = judging.judge(view, judging.load_gates(view, args.gates))
    judging.write(args.dir, judgement)
    terminal = make_terminal()
    terminal.verdict(read_json(PilotFolder(args.dir).verdict), args.dir)
    terminal.close()
    return int(judgement.exit_code)


def verify(arguments: list[str]) -> int:
    """Whether DIR's verdict is GO and was made for exactly this run."""
    parser = _folder_parser(
        "verify", "Exit 0 only when the pilot in DIR said GO to exactly the run given here."
    )
    parser.add_argument("--config-dir", type=Path, help="a folder with your own recipes")
    parser.add_argument("overrides", nargs="+", metavar="+recipe=NAME", help="as for the pilot")
    args = parser.parse_intermixed_args(arguments)

    from pilot.cli.verify import verify_run

    return int(verify_run(args.dir, args.overrides, args.config_dir))


def resume(arguments: list[str]) -> int:
    """Go on with a pilot that was interrupted."""
    args = _folder_parser("resume", "Go on with an interrupted pilot.").parse_args(arguments)
    from pilot import campaign
    from pilot.engines.world import refuse_many

    refuse_many(os.environ)
    return int(campaign.resume(args.dir))


def sync(arguments: list[str]) -> int:
    """Send a pilot to its tracking server (again)."""
    args = _folder_parser("sync", "Send a pilot to its tracking server.").parse_args(arguments)
    from pilot.tracking import project

    return int(project.sync(args.dir))


def diagnose(arguments: list[str]) -> int:
    """Name what happened in training logs; exit code 3 for an alarm, 2 for an unreadable path."""
    parser = argparse.ArgumentParser(
        prog="pilot diagnose",
        description="Read training logs of any common trainer: what happened, where, how sure that "
        "is, what to test next, and what the log cannot tell.",
        epilog="exit codes: 0 no alarm; 3 an alarm (unstable, diverged or dead) in any run; "
        "2 no alarm, but a path could not be read; 1 the answer could not be written",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("paths", nargs="+", metavar="PATH", help="a log, a trainer's output folder, or - (stdin)")
    add("--json", action="store_true", help="print the result as JSON (a stable contract)")
    add("--plot", type=Path, metavar="out.png", help="draw it; out.2.png, ... for further runs")
    add("--format", metavar="NAME", help="read as this format instead of recognising it")
    add("--tracking-uri", metavar="URI", help="PATHs are run ids of this MLflow server or folder")
    args = parser.parse_args(arguments)

    from pilot.diagnose import run

    options = run.Options(
        paths=tuple(args.paths),
        as_json=args.json,
        plot=args.plot,
        format_name=args.format,
        tracking_uri=args.tracking_uri,
    )
    return run.guarded(options)


def arm(arguments: list[str]) -> int:
    """Internal: run one arm in its folder."""
    args = _folder_parser("arm", "Internal: run one arm.").parse_args(arguments)
    from pilot.engines.process import run_arm

    return int(run_arm(args.dir))


def survey(arguments: list[str]) -> int:
    """Internal: measure what the plan needs."""
    parser = _folder_parser("survey", "Internal: survey a recipe.")
    parser.add_argument("--rows-only", action="store_true", help="leave the model out")
    parser.add_argument("--data-only", action="store_true", help="digests of the data, no more")
    args = parser.parse_args(arguments)
    from pilot.survey import run_survey

    return int(run_survey(args.dir, rows_only=args.rows_only, data_only=args.data_only))


def ask(arguments: list[str]) -> int:
    """Internal: build a Trainer and leave its settings."""
    args = _folder_parser("ask", "Internal: ask a Trainer for its settings.").parse_args(arguments)
    from pilot.engines.hf.ask import run_ask

    return int(run_ask(args.dir))


WORDS: dict[str, Word] = {
    "judge": Word(summary="judge DIR [--gates FILE]     judge again, from the records", run=judge),
    "verify": Word(
        summary="verify DIR +recipe=NAME ...  0 only on GO for this very run", run=verify
    ),
    "resume": Word(summary="resume DIR                   go on where a pilot stopped", run=resume),
    "sync": Word(summary="sync DIR                     send it to the tracking server", run=sync),
    "diagnose": Word(
        summary="diagnose PATH ... [--json]   what happened in any training log", run=diagnose
    ),
    "arm": Word(summary="arm DIR", run=arm, internal=True),
    "survey": Word(summary="survey DIR", run=survey, internal=True),
    "ask": Word(summary="ask DIR", run=ask, internal=True),
}
