"""The state machine of a pilot: SURVEY -> PLAN -> BASELINE -> ARMS -> VERDICT -> projections.

Each state's result is a file; a state whose file is there is not entered again. ``resume`` is the
same walk as ``start``.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pilot import arms, judge
from pilot.config import Config, validate
from pilot.entry import EXIT_DISK_FULL, raise_left_error
from pilot.errors import ArmCrashed, DiskFull, ExitCode, FolderError, PilotError, PlanRefused
from pilot.folder import BASELINE, Job, PilotFolder, read_json
from pilot.jsonl import from_json, write_json, write_text
from pilot.launchers import local
from pilot.locks import hold
from pilot.plan import Plan, make_plan, read_plan
from pilot.recipe import RecipeHandle, find_module
from pilot.records import Outcome
from pilot.report.terminal import Terminal, make_terminal
from pilot.view import load, load_rows

_IN_USE = "another pilot works in this folder"
_SPARE_BYTES = 50_000_000  # records, logs and figures of a pilot, generously


def start(
    tree: Mapping[str, Any],
    unresolved_yaml: str,
    root: Path,
    notes: tuple[str, ...],
    *,
    words: Sequence[str] = (),
) -> ExitCode:
    """Begin a pilot in ``root`` (which exists) and walk it to its verdict.

    Args:
        tree: the resolved configuration.
        unresolved_yaml: the composed configuration with its interpolations, as YAML text.
        root: the output folder.
        notes: remarks on the configuration, shown with the plan.
        words: the command line's overrides, for the commands that the verdict proposes.
    """
    config = validate(tree)
    folder = PilotFolder(root)
    module = find_module(str(config.recipe.get("module", config.recipe.get("name"))), Path.cwd())
    with hold(folder.lock, _IN_USE):
        if folder.plan.is_file():
            raise FolderError(
                root, "already holds a pilot", remedy=f"python -m pilot resume {root}"
            )
        write_text(folder.config, yaml.safe_dump(dict(tree), sort_keys=False, allow_unicode=True))
        write_text(folder.unresolved, unresolved_yaml)
        facts = {"cwd": str(Path.cwd()), "module_path": str(module)}
        write_json(folder.start, {**facts, "notes": list(notes), "words": list(words)})
        return _walk(folder, config)


def resume(root: Path) -> ExitCode:
    """Walk a pilot on from where it was left; finished parts are not run again.

    Raises:
        FolderError: no pilot was started in ``root``, or another one works there.
    """
    folder = PilotFolder(root)
    for needed in (folder.config, folder.start):
        if not needed.is_file():
            raise FolderError(
                root,
                f"no pilot was started here: {needed.name} is missing",
                remedy="give the folder that `python -m pilot +recipe=...` printed",
            )
    with hold(folder.lock, _IN_USE):
        config = validate(yaml.safe_load(folder.config.read_text(encoding="utf-8")))
        return _walk(folder, config)


def _walk(folder: PilotFolder, config: Config) -> ExitCode:
    terminal = make_terminal()
    try:
        start_facts = read_json(folder.start)
        cwd = Path(start_facts["cwd"])
        terminal.say(f"pilot of {config.recipe['name']} in {folder.root}")
        survey = _survey(folder, config, terminal, cwd)
        plan = _plan(folder, config, survey, tuple(start_facts["notes"]))
        terminal.plan(plan, survey)
        jobs = arms.planned_jobs(folder, config, plan, str(start_facts["module_path"]))
        baseline = _run(folder, jobs[BASELINE], config, terminal, cwd)
        for job in arms.needed(jobs, baseline, terminal.say):
            _run_if_possible(folder, job, config, terminal, cwd)
        return _conclude(folder, config, terminal)
    finally:
        terminal.close()


def _survey(
    folder: PilotFolder, config: Config, terminal: Terminal, cwd: Path
) -> Mapping[str, Any]:
    if not folder.survey.is_file():
        terminal.say("surveying data, model and step time ...")
        words, log = ["survey", str(folder.root)], folder.root / "survey.log"
        ended = local.run_process(words, log, config.launcher, cwd)
        if ended.code < 0 and not ended.timed_out:
            # Killed, most likely for memory: plan without the model, the baseline will tell.
            terminal.warn(f"the survey was killed by signal {-ended.code}; it skips the model now")
            words = [*words, "--rows-only"]
            ended = local.run_process(words, log, config.launcher, cwd)
        if ended.code == EXIT_DISK_FULL:
            raise DiskFull(folder.root, OSError(28, "No space left on device"))
        raise_left_error(folder.root / "survey_error.json")
        if ended.timed_out:
            raise PilotError(f"the survey took longer than {config.launcher.timeout_secs} s")
        if ended.code != 0 or not folder.survey.is_file():
            raise PilotError(
                f"the survey ended with code {ended.code} and no result\n"
                f"    log:    {folder.root / 'survey.log'}\n"
                f"    remedy: read the log, then: python -m pilot resume {folder.root}"
            )
    return read_json(folder.survey)


def _plan(
    folder: PilotFolder, config: Config, survey: Mapping[str, Any], notes: tuple[str, ...]
) -> Plan:
    if folder.plan.is_file():
        plan = read_plan(read_json(folder.plan))
        if not folder.order.is_file():
            _write_order(folder, config, survey, plan)
        return plan
    plan = make_plan(config, survey, warnings=notes)
    _refuse_full_disk(folder, plan)
    _write_order(folder, config, survey, plan)
    write_json(folder.fingerprint, _fingerprint(folder, config))
    write_json(folder.plan, plan)
    return plan


def _refuse_full_disk(folder: PilotFolder, plan: Plan) -> None:
    kept = len(plan.checkpoints) + 3  # the newest two, and one being written
    needed = (kept + 3 * plan.num_arms) * plan.checkpoint_bytes + _SPARE_BYTES
    free = shutil.disk_usage(folder.root).free
    if free < needed:
        raise PlanRefused(
            [
                f"{folder.root}: {needed:,} bytes are needed, {free:,} are free; "
                "free some space, choose another out_dir or lower pilot.max_checkpoint_bytes"
            ]
        )


def _write_order(
    folder: PilotFolder, config: Config, survey: Mapping[str, Any], plan: Plan
) -> None:
    import numpy as np

    from pilot.data.choose import choose_order

    rows = load_rows(folder, survey)
    order, audit = choose_order(config, plan, rows)
    temporary = folder.root / ".order.npy"
    np.save(temporary, order, allow_pickle=False)
    temporary.replace(folder.order)
    write_json(folder.survey, {**survey, "order_audit": audit})


def _refuse_changes(folder: PilotFolder, config: Config) -> None:
    """Refuse to go on with other code or data than the pilot began with.

    Raises:
        FolderError: with everything that differs.
    """
    from pilot.fingerprint import differences

    lines = differences(read_json(folder.fingerprint), _fingerprint(folder, config))
    if lines:
        what = "\n".join(["the run changed since this pilot began:", *lines])
        raise FolderError(
            folder.root, what, remedy="put it back and resume, or start a new pilot elsewhere"
        )


def _fingerprint(folder: PilotFolder, config: Config) -> dict[str, Any]:
    from pilot.fingerprint import make_fingerprint

    facts = read_json(folder.start)
    handle = RecipeHandle(
        module_path=Path(facts["module_path"]),
        settings=config.recipe,
        sequence_length=config.batch.sequence_length,
        seed=config.pilot.seed,
    )
    tree = yaml.safe_load(folder.config.read_text(encoding="utf-8"))
    return make_fingerprint(tree, handle.module_path, handle.input_files(), world_size=1)


def _run(folder: PilotFolder, job: Job, config: Config, terminal: Terminal, cwd: Path) -> Outcome:
    arm = folder.arm(job.arm)
    if arm.outcome.is_file():
        return from_json(Outcome, read_json(arm.outcome))
    _refuse_changes(folder, config)
    outcome = local.run_arm(job, arm, config.launcher, terminal, cwd)
    _refuse_changes(folder, config)
    return outcome


def _run_if_possible(
    folder: PilotFolder, job: Job, config: Config, terminal: Terminal, cwd: Path
) -> None:
    """A lost arm costs only what needed it: the verdict says which gate that was."""
    try:
        _run(folder, job, config, terminal, cwd)
    except ArmCrashed as error:
        terminal.warn(str(error))


def _conclude(folder: PilotFolder, config: Config, terminal: Terminal) -> ExitCode:
    from pilot.report.figures import draw
    from pilot.tracking.project import project

    view = load(folder.root)
    judgement = judge.judge(view, config.gates)
    judge.write(folder.root, judgement)
    verdict = read_json(folder.verdict)
    try:
        draw(view, verdict, folder.figures)
    except Exception as error:  # a picture must never cost the verdict
        terminal.warn(f"no figure: {type(error).__name__}: {error}")
    result = project(folder.root)
    terminal.verdict(verdict, folder.root)
    for line in result.lines:
        terminal.say(line)
    return judgement.exit_code
