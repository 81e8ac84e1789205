"""The state machine of a pilot: SURVEY -> PLAN -> BASELINE, ARMS -> VERDICT -> projections.

Each state's result is a file; a state whose file is there is not entered again. ``resume`` is the
same walk as ``start``.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pilot import judge
from pilot.arms import noise_store
from pilot.arms.jobs import planned_jobs
from pilot.arms.running import Runs, run_all
from pilot.compare.noise import noise_floor, stored_values
from pilot.config import Config, validate
from pilot.engines.world import EXIT_PEERS
from pilot.entry import EXIT_DISK_FULL, raise_left_error
from pilot.errors import DiskFull, ExitCode, FolderError, PilotError, PlanRefused
from pilot.folder import PilotFolder, read_json
from pilot.jsonl import write_json, write_text
from pilot.launchers import local
from pilot.launchers.processes import run_process
from pilot.locks import hold
from pilot.own_rates import rate_table
from pilot.plan import Plan, make_plan, read_plan
from pilot.recipe import find_recipe_file
from pilot.report.terminal import Terminal, make_terminal
from pilot.same_run import fingerprint_of, refuse_changes
from pilot.view import PilotView, load, load_rows

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
    module = find_recipe_file(config.recipe, Path.cwd())
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
        plan = _plan(folder, config, survey, tuple(start_facts["notes"]), cwd)
        terminal.plan(plan, survey)
        jobs = planned_jobs(folder, config, plan, str(start_facts["module_path"]))
        setting = local.Setting(
            launcher=config.launcher,
            at_once=plan.num_parallel,
            num_threads=plan.num_threads,
            cwd=cwd,
            terminal=terminal,
        )
        run_all(Runs(folder, config, plan, jobs, setting), refuse_changes)
        return _conclude(folder, config, terminal)
    finally:
        terminal.close()


def _survey(
    folder: PilotFolder, config: Config, terminal: Terminal, cwd: Path
) -> Mapping[str, Any]:
    if not folder.survey.is_file():
        terminal.say("surveying data, model and step time ...")
        words, log = ["survey", str(folder.root)], folder.root / "survey.log"
        limits: dict[str, Any] = {
            "timeout_secs": config.launcher.timeout_secs,
            "num_threads": config.launcher.num_threads,
            "num_processes": config.launcher.num_processes,
        }
        (folder.root / "survey_error.json").unlink(missing_ok=True)
        ended = run_process(words, log, cwd, **limits)
        if ended.code < 0 and not ended.timed_out:
            # Killed, most likely for memory: plan without the model, the baseline will tell.
            terminal.warn(f"the survey was killed by signal {-ended.code}; it skips the model now")
            ended = run_process([*words, "--rows-only"], log, cwd, **limits)
        if ended.code == EXIT_DISK_FULL:
            raise DiskFull(folder.root, OSError(28, "No space left on device"))
        raise_left_error(folder.root / "survey_error.json")
        if ended.timed_out:
            raise PilotError(f"the survey took longer than {config.launcher.timeout_secs} s")
        if ended.code not in (0, EXIT_PEERS) or not folder.survey.is_file():
            raise PilotError(
                f"the survey ended with code {ended.code} and no result\n"
                f"    log:    {folder.root / 'survey.log'}\n"
                f"    remedy: read the log, then: python -m pilot resume {folder.root}"
            )
    return read_json(folder.survey)


def _plan(
    folder: PilotFolder,
    config: Config,
    survey: Mapping[str, Any],
    notes: tuple[str, ...],
    cwd: Path,
) -> Plan:
    if folder.plan.is_file():
        plan = read_plan(read_json(folder.plan))
        if not folder.order.is_file():
            _write_order(folder, config, survey, plan)
        return plan
    fingerprint = fingerprint_of(folder, config)
    floor = noise_store.floor_for(config, fingerprint, survey, cwd)
    plan = make_plan(
        config,
        survey,
        warnings=notes,
        has_noise_floor=floor is not None,
        own_rates=rate_table(folder.own_rates, survey, config.optim.learning_rate),
    )
    _refuse_full_disk(folder, config, plan)
    _write_order(folder, config, survey, plan)
    write_json(folder.fingerprint, fingerprint)
    if floor is not None:
        write_json(folder.noise, floor)
    write_json(folder.plan, plan)
    return plan


def _refuse_full_disk(folder: PilotFolder, config: Config, plan: Plan) -> None:
    affordable = plan.checkpoint_bytes <= config.pilot.max_checkpoint_bytes
    # Of each arm on its way the newest two states, and one being written; none that is too large.
    moving = 3 * min(plan.num_parallel, 1 + plan.num_arms) if affordable else 0
    kept = len(plan.checkpoints) + max(1, moving)
    needed = kept * plan.checkpoint_bytes + _SPARE_BYTES
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
    own = np.load(folder.own_order, allow_pickle=False) if folder.own_order.is_file() else None
    order, audit = choose_order(config, plan, rows, own)
    temporary = folder.root / ".order.npy"
    np.save(temporary, order, allow_pickle=False)
    temporary.replace(folder.order)
    write_json(folder.survey, {**survey, "order_audit": audit})


def _conclude(folder: PilotFolder, config: Config, terminal: Terminal) -> ExitCode:
    from pilot.report.figures import draw
    from pilot.tracking.project import project

    view = load(folder.root)
    judgement = judge.judge(view, config.gates)
    judge.write(folder.root, judgement)
    _keep_floor(folder, config, view, terminal)
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


def _keep_floor(folder: PilotFolder, config: Config, view: PilotView, terminal: Terminal) -> None:
    floor = noise_floor(view)
    if floor.source != "replicas" or config.arms.noise_dir is None:
        return
    place = Path(str(read_json(folder.start)["cwd"])) / config.arms.noise_dir
    key = noise_store.key_for(config, view.fingerprint, view.survey)
    try:
        noise_store.keep_floor(place, view.plan.recipe, key, stored_values(floor))
    except (OSError, DiskFull) as error:  # the next pilot measures it again
        terminal.warn(f"the noise floor could not be stored in {place}: {error}")
