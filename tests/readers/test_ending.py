"""How a log ends: the first line behind the last record that says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilot.readers.ending import ENDS, ending
from pilot.readers.registry import read

RECORDS = "".join(f"{{'loss': {3 - i / 100:.2f}, 'epoch': {i / 100}}}\n" for i in range(60))
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    run()\n'
ERROR = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def end(text: str) -> str:
    return ending(RECORDS + text, lambda line: "'loss'" in line)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TRACE + ERROR + "\n", ERROR),
        (TRACE + "KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("".join(f"[rank3]: {t}\n" for t in (TRACE + "my.Odd: no\n").splitlines()), "my.Odd: no"),
        (TRACE + "my.Odd: 1\n" + TRACE + "errors.ChildFailedError: \n", "my.Odd: 1"),
        (TRACE + "errors.ChildFailedError: \n  traceback : Signal 9 (SIGKILL)\n", "Signal 9 (SIGK"),
        (TRACE, "a Python traceback that is cut off"),
        ("Killed\n", "Killed"),
        ("run.sh: line 3: 42 Killed   python a.py\n", "run.sh: line 3: 42 Killed   python a.py"),
        ("Segmentation fault (core dumped)\n", "Segmentation fault (core dumped)"),
        ("[Rank 1] Watchdog caught collective operation timeout: x\n", "Watchdog caught"),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 1 DUE TO TIME LIMIT ***\n", "slurmstepd"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch.\n", "slurmstepd: error"),
        ("RuntimeError\x1b[1m: CUDA error: an illegal access\n", "RuntimeError\\x1b[1m: CUDA err"),
    ],
)
def test_what_is_found(text: str, found: str) -> None:
    assert end(text).startswith(found)
    assert "\x1b" not in end(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "done\nTraining completed.\n",
        TRACE + "ValueError: caught\n{'loss': 1.0, 'epoch': 0.7}\n",  # the run went on
        "Killed\n 50%|#####     | 5/10 [00:01<00:01]\n",
        "Exception ignored in: <function X.__del__>\n" + TRACE + "OSError: x\n",
        "NCCL version 2.21\nexport TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n",
        "Killed\n" + "text\n" * 300,  # far from the end
    ],
)
def test_what_is_no_end(text: str) -> None:
    assert end(text) == ""


def test_the_note_stands_first_and_long_lines_are_cut(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(RECORDS + TRACE + ERROR + "." * 500 + "\n")
    (trace,) = read(tmp_path / "a.txt")
    assert trace.notes[0].startswith(f"{ENDS}{ERROR}")
    assert len(trace.notes[0]) == len(ENDS) + 160
