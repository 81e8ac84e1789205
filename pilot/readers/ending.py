"""How a log ends where the program did not end by itself: an exception, a kill, a time limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pilot.readers.refusals import shown

ENDS = "the file ends with: "
_MAX_LINES, _MAX_CHARS = 200, 160
# What launchers put before a line: "[rank0]:", "[1,0]<stderr>:", "3: ", a host, a time.
_PREFIX = re.compile(
    r"^(?:\[[^\]\n]{1,40}\](?:<\w+>)?:? ?|\w+: (?=Traceback| {2}File )|\d{1,5}: ?"
    r"|\s+traceback\s*: )+"
)
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:: .*|$)")
_NO_END = "Exception ignored in"  # while the program goes on, or when it is over anyway
_STOPPED = re.compile(
    r"\bCUDA (?:error|out of memory)\b"
    r"|\b(?:HIP|CUBLAS|CUDNN) (?:error|out of memory)\b"
    r"|\bNCCL\b.*\b(?:timeout|timed out|error)\b|\bnccl\w*Error\b"
    r"|Watchdog caught collective operation timeout"
    r"|^Killed\b|\d+ Killed\b|\bout[ -]of[ -]memory handler\b|\boom[-_]kill|\bOOM Killed\b"
    r"|\bCANCELLED AT\b|\bDUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)\b"
    r"|Segmentation fault|Bus error\b.*(?:core|signal)|\(core dumped\)"
    r"|\bSIG(?:KILL|TERM|SEGV|ABRT)\b"
    r"|^Fatal Python error: |^terminate called after throwing|^Aborted\b"
)
_CONSEQUENCE = re.compile(r"[\w.]*ChildFailedError\b")  # the launcher's, without a cause
_VALUE = re.compile(r"loss['\"]?\s{0,4}[:=|]?\s{0,4}\d|\d%\|", re.IGNORECASE)


def ending(tail: str, is_record: Callable[[str], bool]) -> str:
    """The line that says why the program ended; "" where it ended by itself, or none says so.

    It stands among the last 200 lines and behind the last record (``is_record`` of a line, or a
    line with a value of the loss or a progress bar). The first one counts: what follows it (other
    ranks, the launcher) are consequences. Control characters are escaped, long lines cut.
    """
    texts = tail.rstrip().split("\n")[-_MAX_LINES:]
    found = [(place, what) for place in range(len(texts)) if (what := _found(texts, place))]
    if not found:  # as in most logs: then no line is asked whether it is a record
        return ""
    last = _last_record(texts, found[0][0], is_record)
    behind = [what for place, what in found if place > last]
    causes = [what for what in behind if not _CONSEQUENCE.match(what)]
    return shown((causes or behind or [""])[0], _MAX_CHARS)


def _last_record(texts: Sequence[str], first: int, is_record: Callable[[str], bool]) -> int:
    """The last line behind ``first`` that is a record; -1: none is."""
    for place in range(len(texts) - 1, first, -1):
        if not _STOPPED.search(texts[place]):
            text = texts[place]
            if _VALUE.search(text) or is_record(text):
                return place
    return -1


def _found(texts: Sequence[str], place: int) -> str:
    """What line ``place`` (of a traceback: its last line) says of the end; "" if nothing."""
    text = _PREFIX.sub("", texts[place])
    if _TRACEBACK in text:
        return "" if place and _NO_END in texts[place - 1] else _raised(texts[place + 1 :])
    if text.startswith((" ", "\t")):  # a line of the program, within a traceback
        return ""
    return text.strip() if _STOPPED.search(text) else ""


def _raised(texts: Sequence[str]) -> str:
    """The exception under a traceback: the first line that is not indented."""
    for raw in texts:
        text = _PREFIX.sub("", raw)
        if text.strip() and not text.startswith((" ", "\t")) and _RAISED.match(text):
            return text.strip()
    return "a Python traceback that is cut off"
