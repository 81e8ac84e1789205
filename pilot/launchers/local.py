"""Runs arms as processes of this machine: n at a time, each in its own process group.

An arm that a signal killed is started again from its newest checkpoint, at most ``max_restarts``
times; a Python exception is an outcome and never retried. One that the kernel killed for memory
while others ran is tried once more alone: only then is it an outcome. However the parent ends, no
arm stays behind: it stops every group on SIGTERM and SIGINT, and an arm whose parent is gone ends
by itself at its next step.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pilot.config import Launcher
from pilot.entry import EXIT_DISK_FULL, raise_left_error
from pilot.errors import ArmCrashed, DiskFull, PilotError
from pilot.folder import ArmFolder, Job, read_json
from pilot.jsonl import from_json, write_json
from pilot.launchers.processes import POLL_SECS, Child, command_of, stop_signals
from pilot.launchers.progress import Progress
from pilot.memory import num_oom_kills
from pilot.records import Outcome
from pilot.report.terminal import Terminal
from pilot.view import load_arm

# An arm's end: its outcome, or why it has none.
End = Outcome | PilotError


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where and how arms run: the launcher's keys, arms at a time, threads of each, directory.

    ``command`` is what is given the words ``arm DIR``; None: pilot, in as many processes as the
    launcher's keys say.
    """

    launcher: Launcher
    at_once: int
    num_threads: int | None
    cwd: Path
    terminal: Terminal
    command: tuple[str, ...] | None = None


@dataclass
class _Run:
    """One arm on its way: waiting, running, or to be run alone."""

    job: Job
    folder: ArmFolder
    child: Child | None = None
    progress: Progress | None = None
    started: float = 0.0
    starts: int = 0
    kills_before: int = 0
    had_company: bool = False
    alone: bool = False


@dataclass
class _Pool:
    setting: Setting
    waiting: list[_Run]
    running: list[_Run] = field(default_factory=list)
    ends: dict[str, End] = field(default_factory=dict)


def run_arms(
    jobs: Sequence[tuple[Job, ArmFolder]],
    setting: Setting,
    on_end: Callable[[Job, End], Collection[str]] = lambda job, end: (),
) -> dict[str, End]:
    """Run arms until each has an outcome or a reason for having none; returns them by name.

    Args:
        jobs: the arms with their folders, in the order in which they are started.
        setting: where and how.
        on_end: called when an arm has ended; the arms it names are stopped or not started.

    Raises:
        DiskFull: going on would lose what is measured; what was measured is kept.
    """
    pool = _Pool(setting, [_Run(job, folder) for job, folder in jobs])
    with stop_signals() as check:
        try:
            while pool.waiting or pool.running:
                _start_next(pool)
                for run in list(pool.running):
                    if run not in pool.running:  # cancelled a moment ago
                        continue
                    end = _look_at(run, pool)
                    if end is not None:
                        _cancel(pool, on_end(run.job, end))
                check()
                if pool.running:
                    time.sleep(POLL_SECS)
        finally:
            for run in pool.running:
                if run.child is not None:
                    run.child.kill()
    return pool.ends


def _start_next(pool: _Pool) -> None:
    while pool.waiting and len(pool.running) < pool.setting.at_once:
        run = pool.waiting[0]
        if pool.running and (run.alone or any(r.alone for r in pool.running)):
            return
        pool.waiting.pop(0)
        if not run.starts:
            run.started = time.monotonic()
            steps = run.job.stop_step - (run.job.fork_step or run.job.start_step)
            pool.setting.terminal.arm_started(run.job, steps + run.job.cooldown_steps)
        _start(run, pool.setting)
        pool.running.append(run)
        for other in pool.running:
            other.had_company = other.had_company or len(pool.running) > 1


def _start(run: _Run, setting: Setting) -> None:
    run.starts += 1
    run.kills_before, run.had_company = num_oom_kills(), False
    for leftover in (run.folder.absence, run.folder.error):
        leftover.unlink(missing_ok=True)
    run.progress = Progress(run.job, run.folder, setting.terminal)
    run.child = Child(
        ["arm", str(run.folder.root)],
        run.folder.log,
        setting.cwd,
        timeout_secs=setting.launcher.timeout_secs,
        num_threads=setting.num_threads,
        command=setting.command or command_of(setting.launcher.num_processes),
    )


def _look_at(run: _Run, pool: _Pool) -> End | None:
    """Show an arm's progress; its end, if it has ended for good."""
    assert run.child is not None and run.progress is not None
    ended = run.child.poll()
    run.progress()
    if ended is None:
        return None
    pool.running.remove(run)
    end = _end_of(run, ended.code, ended.timed_out, pool)
    if end is None:  # it will be started again
        return None
    secs = time.monotonic() - run.started
    outcome = end if isinstance(end, Outcome) else None
    pool.setting.terminal.arm_finished(run.job, outcome, secs)
    pool.ends[run.job.arm] = end
    return end


def _end_of(run: _Run, code: int, timed_out: bool, pool: _Pool) -> End | None:
    folder, setting = run.folder, pool.setting
    if folder.outcome.is_file():
        return from_json(Outcome, read_json(folder.outcome))
    if timed_out:
        what = f"launcher.timeout_secs = {setting.launcher.timeout_secs} is over"
        return ArmCrashed(run.job.arm, what, folder.log)
    if code == EXIT_DISK_FULL:
        raise DiskFull(folder.root, OSError(28, "No space left on device"))
    if code == -signal.SIGKILL and num_oom_kills() > run.kills_before:
        return _out_of_memory(run, pool)
    try:
        raise_left_error(folder.error)
    except PilotError as error:
        return error
    if code >= 0:
        return ArmCrashed(run.job.arm, f"exit code {code}", folder.log)
    if run.starts > setting.launcher.max_restarts:
        return ArmCrashed(run.job.arm, f"killed by a signal {run.starts} times", folder.log)
    setting.terminal.warn(
        f"{run.job.title}: killed by signal {-code}; starting again from its newest state"
    )
    pool.waiting.insert(0, run)
    return None


def _out_of_memory(run: _Run, pool: _Pool) -> Outcome | None:
    """An outcome only when no other arm shared the memory; else it is tried alone."""
    if run.had_company and not run.alone:
        pool.setting.terminal.warn(
            f"{run.job.title}: killed for memory beside other arms; it is tried again alone"
        )
        run.alone = True
        pool.waiting.append(run)
        return None
    steps = load_arm(run.folder.root).steps
    last = steps[-1] if steps else None
    outcome = Outcome(
        status=Outcome.OUT_OF_MEMORY,
        last_step=last.step if last else 0,
        where="the whole process",
        step=last.step + 1 if last else None,
        error_type="SIGKILL",
        message="the kernel killed the process because memory ran out",
    )
    write_json(run.folder.outcome, outcome)
    return outcome


def _cancel(pool: _Pool, names: Collection[str]) -> None:
    pool.waiting = [run for run in pool.waiting if run.job.arm not in names]
    for run in [r for r in pool.running if r.job.arm in names]:
        assert run.child is not None
        run.child.kill()
        pool.running.remove(run)
        pool.setting.terminal.arm_finished(run.job, None, time.monotonic() - run.started)
