"""Which step a printed record stands at, by the progress bars around it."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

# "24%|##  | 2565/10485 [3:15:17<10:03:00, ...", also without the drawing.
_BAR = re.compile(r"\d%(?:\|[^|]{0,300}\|)?\s*(\d+)/(\d+) \[")
Bar = tuple[int, int]
"""The step that a bar shows, and its total."""


class BarSteps:
    """The bars before and after each record.

    Hugging Face's Trainer takes its bar away to print a record and draws it again behind, so the
    bar behind shows the step of the record; the one before may be older. Bars of an evaluation
    have another total.
    """

    def __init__(self) -> None:
        self._last: Bar | None = None
        self._around: list[tuple[Bar | None, Bar | None]] = []
        self._waits = False

    def see(self, text: str) -> None:
        """Look for bars in a line, or in a part of one."""
        if "%" not in text or " [" not in text:
            return
        for match in _BAR.finditer(text):
            self._last = int(match[1]), int(match[2])
            if self._waits:
                self._around[-1] = self._around[-1][0], self._last
                self._waits = False

    def mark(self) -> None:
        """A record of the training stands here."""
        self._around.append((self._last, None))
        self._waits = True

    def note(self) -> str:
        """Where the first and the last record stand; "" where the bars do not tell."""
        totals = Counter(bar[1] for pair in self._around for bar in pair if bar is not None)
        if not totals:
            return ""
        total = totals.most_common(1)[0][0]
        steps = [
            next((bar[0] for bar in (after, before) if bar and bar[1] == total), None)
            for before, after in self._around
        ]
        known = [(place, step) for place, step in enumerate(steps, start=1) if step is not None]
        if 10 * len(known) < 9 * len(steps) or any(b[1] <= a[1] for a, b in pairwise(known)):
            return ""
        # Where the bars before and behind differ, the output was written out of order or thinned.
        is_exact = all(a == b for a, b in self._around if a is not None and b is not None)
        word = "is" if is_exact else "is near"
        places = [f"record {place} {word} step {step}" for place, step in (known[0], known[-1])]
        return f"the progress bar counts {total} steps: {', '.join(dict.fromkeys(places))}"
