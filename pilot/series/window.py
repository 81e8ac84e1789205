"""Whether a log begins with the run, or is a window out of it."""

from __future__ import annotations

from pilot.series.limits import START_INTERVALS


def is_window(first_step: int, interval: int) -> bool:
    """Whether the first record lies more than 16 logging intervals (at least 1) after step 0.

    What came before is then not in the log: its first records are no start of a run.
    """
    return first_step > START_INTERVALS * max(interval, 1)
