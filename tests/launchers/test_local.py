"""The pool of arms, with real processes: a small program in the place of ``python -m pilot``."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from pilot.config import Launcher
from pilot.errors import ArmCrashed, DiskFull, PilotError
from pilot.folder import ArmFolder, Job
from pilot.jsonl import write_json
from pilot.launchers import local
from pilot.records import Outcome
from pilot.report.terminal import make_terminal
from tests.conftest import ROOT

# What an arm's process does is written in its folder as Python; `root` is that folder.
PROGRAM = """\
import json, os, signal, sys, time
from pathlib import Path
root = Path(sys.argv[2])
starts = len(list(root.glob("steps.*.jsonl"))) + 1
(root / f"steps.{starts:03d}.jsonl").touch()
def done(status="completed", message=""):
    text = json.dumps({"status": status, "last_step": 3, "message": message})
    (root / "outcome.json").write_text(text)
exec((root / "what.py").read_text())
"""


def make_arm(root: Path, name: str, what: str) -> tuple[Job, ArmFolder]:
    """An arm whose process executes ``what``."""
    folder = ArmFolder(root / "arms" / name)
    folder.root.mkdir(parents=True)
    (folder.root / "what.py").write_text(what)
    job = Job(
        arm=name,
        role="arm",
        variable="optim.learning_rate",
        value="1",
        start_step=0,
        stop_step=3,
        cooldown_steps=0,
        validations={},
        checkpoints={},
        module_path="",
        title=name,
    )
    write_json(folder.job, job)
    return job, folder


def make_setting(root: Path, at_once: int = 2, **keys: object) -> tuple[local.Setting, io.StringIO]:
    """A setting whose arms run ``PROGRAM``, and what is shown."""
    program = root / "program.py"
    program.write_text(PROGRAM)
    shown = io.StringIO()
    setting = local.Setting(
        launcher=Launcher.model_validate(keys),
        at_once=at_once,
        num_threads=1,
        cwd=root,
        terminal=make_terminal(shown),
        command=(sys.executable, str(program)),
    )
    return setting, shown


def statuses(ends: dict[str, local.End]) -> dict[str, str]:
    """Each arm's status, or the name of its failure."""
    return {
        name: end.status if isinstance(end, Outcome) else type(end).__name__
        for name, end in ends.items()
    }


def test_each_arm_fails_for_itself(tmp_path: Path) -> None:
    setting, shown = make_setting(tmp_path, timeout_secs=4.0, max_restarts=1)
    arms = [
        make_arm(tmp_path, "good", "done()"),
        make_arm(tmp_path, "raises", "done('exception', 'boom')"),
        make_arm(tmp_path, "crashes", "raise ValueError('pilot')"),
        make_arm(tmp_path, "killed", "os.kill(os.getpid(), signal.SIGKILL)"),
        make_arm(tmp_path, "hangs", "time.sleep(60)"),
        make_arm(tmp_path, "last", "done()"),
    ]
    ends = local.run_arms(arms, setting)
    assert statuses(ends) == {
        "good": "completed",
        "raises": "exception",
        "crashes": "ArmCrashed",
        "killed": "ArmCrashed",
        "hangs": "ArmCrashed",
        "last": "completed",
    }
    reasons = {n: e.reason for n, e in ends.items() if isinstance(e, ArmCrashed)}
    assert reasons["crashes"] == "exit code 1"
    assert reasons["killed"] == "killed by a signal 2 times"
    assert reasons["hangs"] == "launcher.timeout_secs = 4.0 is over"
    assert "killed: killed by signal 9; starting again from its newest state" in shown.getvalue()


def test_a_killed_arm_goes_on(tmp_path: Path) -> None:
    setting, _ = make_setting(tmp_path)
    what = "done() if starts == 3 else os.kill(os.getpid(), signal.SIGTERM)"
    ends = local.run_arms([make_arm(tmp_path, "a", what)], setting)
    assert statuses(ends) == {"a": "completed"}


def test_an_exception_is_not_tried_again(tmp_path: Path) -> None:
    setting, _ = make_setting(tmp_path, max_restarts=5)
    job, folder = make_arm(tmp_path, "a", "raise SystemExit(1)")
    assert statuses(local.run_arms([(job, folder)], setting)) == {"a": "ArmCrashed"}
    assert len(list(folder.root.glob("steps.*.jsonl"))) == 1


MEET = """\
(root.parent / (root.name + ".here")).touch()
end = time.monotonic() + 20
while len(list(root.parent.glob("*.here"))) < 2 and time.monotonic() < end:
    time.sleep(0.02)
done(message=str(len(list(root.parent.glob("*.here")))))
"""


def test_two_run_side_by_side(tmp_path: Path) -> None:
    setting, _ = make_setting(tmp_path, at_once=2)
    ends = local.run_arms([make_arm(tmp_path, n, MEET) for n in "ab"], setting)
    assert [e.message for e in ends.values() if isinstance(e, Outcome)] == ["2", "2"]


ALONE = """\
others = [p for p in root.parent.glob("*.running")]
mine = root.parent / (root.name + ".running")
mine.touch(); time.sleep(0.3); mine.unlink()
done(message=str(len(others)))
"""


def test_one_at_a_time(tmp_path: Path) -> None:
    setting, _ = make_setting(tmp_path, at_once=1)
    ends = local.run_arms([make_arm(tmp_path, n, ALONE) for n in "abc"], setting)
    assert [e.message for e in ends.values() if isinstance(e, Outcome)] == ["0", "0", "0"]


def test_the_named_arms_are_stopped(tmp_path: Path) -> None:
    setting, _ = make_setting(tmp_path, at_once=2)
    arms = [
        make_arm(tmp_path, "baseline", "time.sleep(0.5); done('exception')"),
        make_arm(tmp_path, "beside", "time.sleep(60)"),
        make_arm(tmp_path, "later", "done()"),
    ]

    def on_end(job: Job, end: local.End) -> Collection[str]:
        return ["beside", "later"] if job.arm == "baseline" else ()

    started = time.monotonic()
    ends = local.run_arms(arms, setting, on_end)
    assert statuses(ends) == {"baseline": "exception"}
    assert time.monotonic() - started < 20


def test_a_full_disk_ends_everything(tmp_path: Path) -> None:
    setting, _ = make_setting(tmp_path)
    arms = [make_arm(tmp_path, "full", "raise SystemExit(74)")]
    other, folder = make_arm(tmp_path, "other", "time.sleep(60)")
    with pytest.raises(DiskFull):
        local.run_arms([*arms, (other, folder)], setting)


def test_what_an_arm_left_is_its_end(tmp_path: Path) -> None:
    setting, _ = make_setting(tmp_path)
    left = json.dumps({"message": "rows cannot be paired", "exit_code": 2})
    what = f"(root / 'error.json').write_text({left!r}); raise SystemExit(2)"
    end = local.run_arms([make_arm(tmp_path, "a", what)], setting)["a"]
    assert isinstance(end, PilotError) and str(end) == "rows cannot be paired"


@pytest.mark.parametrize("had_company", [True, False])
def test_out_of_memory_beside_others_is_tried_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, had_company: bool
) -> None:
    kills = iter(range(1000))  # the kernel's counter goes up all the time
    monkeypatch.setattr(local, "num_oom_kills", lambda: next(kills))
    setting, shown = make_setting(tmp_path, at_once=2)
    arms = [make_arm(tmp_path, "a", "os.kill(os.getpid(), signal.SIGKILL)")]
    if had_company:
        arms.append(make_arm(tmp_path, "b", "time.sleep(1.5); done()"))
    ends = local.run_arms(arms, setting)
    assert statuses(ends)["a"] == Outcome.OUT_OF_MEMORY
    assert ("tried again alone" in shown.getvalue()) is had_company


PARENT = """\
import io, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.launchers.test_local import make_arm, make_setting
from pilot.launchers import local
root = Path(sys.argv[1])
what = "import subprocess as s; s.Popen(['sleep', '4242']); (root / 'up').touch(); time.sleep(60)"
local.run_arms([make_arm(root, n, what) for n in "ab"], make_setting(root)[0])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_no_process(tmp_path: Path, number: int) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), str(ROOT)],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("arms/*/up"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    parent.send_signal(number)
    code = parent.wait(timeout=30)
    assert code == (143 if number == signal.SIGTERM else -signal.SIGINT) or code == 1
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    left = [line for line in listing.stdout.splitlines() if str(tmp_path) in line]
    assert not left and "sleep 4242" not in listing.stdout.splitlines()
