"""The next command for a run: see it, then pilot the recipe that it came from."""

from __future__ import annotations

import shlex

from pilot.diagnose.study import Study
from pilot.report.words import one_line


def next_steps(study: Study, has_plot: bool) -> list[str]:
    """Lines that are ready to copy, each with what it is good for behind a ``#``."""
    lines = []
    if not has_plot:
        words = " ".join(shlex.quote(one_line(word)) for word in (study.path, *study.flags))
        lines.append(f"python -m pilot diagnose {words} --plot out.png")
    state = study.diagnosis.state
    if state == "too_short":
        return [*lines, "# log more of the run, if you can every step, and diagnose that"]
    return [*lines, "python -m pilot +recipe=NAME  # your recipe, one change at a time"]
